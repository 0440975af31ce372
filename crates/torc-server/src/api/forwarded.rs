//! Who asks through a proxy. What a proxy says of its client (`X-Forwarded-For`, `X-Forwarded-Proto`) counts when the
//! connection comes from an address that was named, and from no other: every
//! client can write such headers.
//!
//! It is for the log and for the headers of the page. No right depends on it.

use axum::http::request::Parts;
use std::net::IpAddr;

/// The address that a connection comes from, beside its requests.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub IpAddr);

/// An address, or all that begin with the same bits (`10.0.0.0/8`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads an address or a network.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}` is neither an address nor a network such as `10.0.0.0/8`");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| expected())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), str::parse).map_err(|_| expected())?;
        if bits > all {
            return Err(expected());
        }
        Ok(Self { address, bits })
    }

    fn contains(&self, other: IpAddr) -> bool {
        let first = |value: u128, width: u32| value.checked_shr(width - self.bits).unwrap_or(0);
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                first(u32::from(own).into(), 32) == first(u32::from(other).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                first(own.into(), 128) == first(other.into(), 128)
            }
            _ => false,
        }
    }
}

/// Where proxies may be.
#[derive(Clone, Default, Debug)]
pub struct Proxies(Vec<Network>);

/// The client of a request, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardedClient {
    /// None: this machine, through the Unix socket.
    pub address: Option<IpAddr>,
    /// It speaks HTTPS to a proxy that was named.
    pub is_https: bool,
}

impl Proxies {
    /// Those in these networks.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Who sent a request. Each proxy adds the address that it saw at the end, so the last one that is no proxy of ours is the
    /// client; what stands before it may be made up by the client.
    pub fn client(&self, head: &Parts) -> ForwardedClient {
        let Some(PeerAddress(peer)) = head.extensions.get().copied() else {
            return ForwardedClient { address: None, is_https: false };
        };
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return ForwardedClient { address: Some(peer), is_https: false };
        }
        let lines = head.headers.get_all("x-forwarded-for").iter();
        let seen: Vec<&str> =
            lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).collect();
        let mut client = peer;
        for address in seen.iter().rev() {
            // Behind a word that is no address nothing can be told.
            let Ok(address) = address.trim().parse::<IpAddr>() else { break };
            client = address.to_canonical();
            if !self.trusts(client) {
                break;
            }
        }
        let is_https = head.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        ForwardedClient { address: Some(client), is_https }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let networks = proxies.iter().map(|text| Network::parse(text).expect(text)).collect();
        let mut request = Request::builder();
        for line in forwarded {
            request = request.header("x-forwarded-for", *line);
        }
        let mut head = request.body(()).expect("a request").into_parts().0;
        head.extensions.insert(PeerAddress(peer.parse().expect(peer)));
        Proxies::new(networks).client(&head).address.expect("an address").to_string()
    }

    #[test]
    fn forwarded_headers_count_from_named_addresses_only() {
        assert_eq!(client(&[], "10.0.0.9", &["203.0.113.7"]), "10.0.0.9");
        assert_eq!(client(&["10.0.0.8"], "10.0.0.9", &["203.0.113.7"]), "10.0.0.9");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.9", &["203.0.113.7"]), "203.0.113.7");
        assert_eq!(client(&["10.0.0.9"], "::ffff:10.0.0.9", &["2001:db8::1"]), "2001:db8::1");
    }

    #[test]
    fn what_a_client_adds_itself_is_not_believed() {
        let proxies = ["10.0.0.0/8"];
        let lines = ["1.1.1.1, 203.0.113.7", "10.0.0.3"];
        assert_eq!(client(&proxies, "10.0.0.9", &lines), "203.0.113.7");
        assert_eq!(client(&proxies, "10.0.0.9", &["1.1.1.1, unknown"]), "10.0.0.9");
        assert_eq!(client(&proxies, "10.0.0.9", &[]), "10.0.0.9");
    }

    #[test]
    fn networks_are_addresses_with_or_without_a_number_of_bits() {
        for wrong in ["", "proxy", "10.0.0.0/33", "10.0.0.0/", "::/129", "10.0.0.0/-1"] {
            assert!(Network::parse(wrong).is_err(), "{wrong}");
        }
        let any = Network::parse("0.0.0.0/0").expect("a network");
        assert!(any.contains("8.8.8.8".parse().expect("an address")));
        let six = Network::parse("2001:db8::/32").expect("a network");
        assert!(six.contains("2001:db8:1::1".parse().expect("an address")));
        assert!(!six.contains("2001:db9::1".parse().expect("an address")));
        assert!(Network::parse("::/0").expect("a network").contains("::1".parse().expect("one")));
    }
}
