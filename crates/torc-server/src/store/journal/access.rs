//! Rows of who may do what and who did what: tokens, sessions of the page, groups of users and what they share,
//! the audit log.

use crate::secret::{Hash, hex};
use crate::store::read;
use crate::store::rows::Rows as _;
use rusqlite::{Connection, params};
use torc_model::api::{
    AccessGroupView, CreateAccessGroup, CreateToken, GroupRole, TokenView, UiSessionView,
};
use torc_model::ids::WorkflowId;

/// Writes a new token.
pub fn insert_token(
    db: &Connection,
    new: &CreateToken,
    hash: &Hash,
    now: i64,
    expires: Option<i64>,
) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO token (user, role, name, hash, created_ms, expires_ms, workflow_id, access_group_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .insert(params![
        new.user,
        new.role.as_str(),
        new.name,
        hex(hash),
        now,
        expires,
        new.workflow_id.map(|id| id.0),
        new.access_group_id
    ])
}

/// One token.
pub fn token(db: &Connection, id: i64) -> rusqlite::Result<Option<TokenView>> {
    db.prepare_cached("SELECT * FROM token WHERE id = ?1")?.find([id], read::token_view)
}

/// Gives a token another secret, which was not used yet; false: there is no such token.
pub fn rotate_token(db: &Connection, id: i64, hash: &Hash) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached("UPDATE token SET hash = ?2, last_used_ms = NULL WHERE id = ?1")?
        .execute(params![id, hex(hash)])?;
    Ok(changed > 0)
}

/// Notes when a token was last used.
pub fn token_used(db: &Connection, id: i64, at: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE token SET last_used_ms = max(coalesce(last_used_ms, 0), ?2) WHERE id = ?1",
    )?
    .execute([id, at])?;
    Ok(())
}

/// Deletes a token, and with it the sessions that its links made.
pub fn delete_token(db: &Connection, id: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM token WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// Writes a new session of the page and gives it its id.
pub fn insert_session(
    db: &Connection,
    hash: &Hash,
    made_with: Option<i64>,
    session: &mut UiSessionView,
) -> rusqlite::Result<()> {
    session.id = db
        .prepare_cached(
            "INSERT INTO ui_session (hash, scope, label, created_ms, expires_ms, token_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .insert(params![
            hex(hash),
            session.scope.as_str(),
            session.label,
            session.created_ms,
            session.expires_ms,
            made_with
        ])?;
    Ok(())
}

/// Which sessions of the page end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndingSessions {
    /// Those that are over by this time.
    Over(i64),
    /// Those that links of this token made.
    OfToken(i64),
    /// This one.
    One(i64),
}

/// Deletes sessions of the page; tells how many.
pub fn delete_sessions(db: &Connection, which: EndingSessions) -> rusqlite::Result<usize> {
    let (condition, value) = match which {
        EndingSessions::Over(now) => ("expires_ms <= ?1", now),
        EndingSessions::OfToken(token) => ("token_id = ?1", token),
        EndingSessions::One(id) => ("id = ?1", id),
    };
    db.prepare_cached(&format!("DELETE FROM ui_session WHERE {condition}"))?.execute([value])
}

/// Writes a new group.
pub fn insert_group(db: &Connection, new: &CreateAccessGroup, now: i64) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO access_group (name, description, created_ms) VALUES (?1, ?2, ?3)",
    )?
    .insert(params![new.name, new.description, now])
}

/// Deletes a group with its members, and the tokens that were good for it only.
pub fn delete_group(db: &Connection, id: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM access_group WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// One group.
pub fn group(db: &Connection, id: i64) -> rusqlite::Result<Option<AccessGroupView>> {
    let sql = format!("{} WHERE g.id = ?1", read::ACCESS_GROUPS);
    db.prepare_cached(&sql)?.find([id], read::access_group_view)
}

/// The groups with a user in them, or all of them, by name.
pub fn groups_of(db: &Connection, user: Option<&str>) -> rusqlite::Result<Vec<(i64, String)>> {
    db.prepare_cached(
        "SELECT g.id, g.name FROM access_group g WHERE ?1 IS NULL OR EXISTS
         (SELECT 1 FROM access_group_member m WHERE m.group_id = g.id AND m.user = ?1) ORDER BY g.name",
    )?
    .all([user], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// There are neither people with tokens nor groups.
pub fn is_single_user(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT NOT EXISTS (SELECT 1 FROM token) AND NOT EXISTS (SELECT 1 FROM access_group)",
    )?
    .query_row([], |row| row.get(0))
}

/// What a user is in a group; None: not in it.
pub fn role_in(db: &Connection, group: i64, user: &str) -> rusqlite::Result<Option<GroupRole>> {
    let role: Option<String> = db
        .prepare_cached("SELECT role FROM access_group_member WHERE group_id = ?1 AND user = ?2")?
        .find(params![group, user], |row| row.get(0))?;
    Ok(role.as_deref().and_then(GroupRole::parse))
}

/// Puts a user into a group, or gives them another role in it.
pub fn put_member(
    db: &Connection,
    group: i64,
    user: &str,
    role: GroupRole,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO access_group_member (group_id, user, role) VALUES (?1, ?2, ?3)
         ON CONFLICT (group_id, user) DO UPDATE SET role = excluded.role",
    )?
    .execute(params![group, user, role.as_str()])?;
    Ok(())
}

/// Takes a user out of a group.
pub fn delete_member(db: &Connection, group: i64, user: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM access_group_member WHERE group_id = ?1 AND user = ?2")?
        .execute(params![group, user])?;
    Ok(())
}

/// Shares a workflow with a group, if it is not.
pub fn share(db: &Connection, workflow: WorkflowId, group: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO workflow_access_group (workflow_id, group_id) VALUES (?1, ?2)",
    )?
    .execute([workflow.0, group])?;
    Ok(())
}

/// Shares a workflow no longer with a group; false: it was not.
pub fn unshare(db: &Connection, workflow: WorkflowId, group: i64) -> rusqlite::Result<bool> {
    let gone = db
        .prepare_cached(
            "DELETE FROM workflow_access_group WHERE workflow_id = ?1 AND group_id = ?2",
        )?
        .execute([workflow.0, group])?;
    Ok(gone > 0)
}

/// A request of a person that has changed something.
pub struct AuditRow<'a> {
    /// Whose request.
    pub user: &'a str,
    /// With which token; None: that of the server's owner.
    pub token_id: Option<i64>,
    /// Its method.
    pub method: &'a str,
    pub path: &'a str,
    /// Its id in the log.
    pub request_id: &'a str,
}

/// Writes a row of the audit log and gives its number.
pub fn insert_audit(db: &Connection, row: &AuditRow<'_>, now: i64) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO audit (at_ms, user, token_id, method, path, request_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .insert(params![now, row.user, row.token_id, row.method, row.path, row.request_id])
}

/// Deletes rows of the audit log up to this one.
pub fn forget_audit(db: &Connection, last: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM audit WHERE id <= ?1")?.execute([last])?;
    Ok(())
}
