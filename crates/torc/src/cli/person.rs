//! Who sits here, for the record.

use std::env;

/// Users of this machine; those of a directory service are not in it.
const PASSWD: &str = "/etc/passwd";

/// The name of the user who runs this program: as the session says it, else the account's name,
/// else its number. Jobs of `cron`, services and containers often have no `$USER`.
pub fn name() -> String {
    let said = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|key| env::var(key).ok().filter(|name| !name.is_empty()));
    said.unwrap_or_else(|| {
        let uid = rustix::process::getuid().as_raw();
        // Without the file the number still says who it was.
        let accounts = std::fs::read_to_string(PASSWD).unwrap_or_default();
        account(&accounts, uid).map_or_else(|| uid.to_string(), str::to_owned)
    })
}

/// The name of an account: lines are `name:password:uid:...`.
fn account(accounts: &str, uid: u32) -> Option<&str> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        let accounts = "# local accounts\nroot:x:0:0:root:/root:/bin/sh\n::7:\nbroken\nada:x:1815:100::/home/ada:\n";
        assert_eq!(account(accounts, 1815), Some("ada"));
        assert_eq!(account(accounts, 0), Some("root"));
        assert_eq!(account(accounts, 7), None);
        assert_eq!(account(accounts, 181), None);
    }
}
