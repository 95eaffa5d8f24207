//! Where a pool server is: `HOST:PORT`, `[v6]:PORT` or `unix:/path`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The address of a pool server, as users write it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A Unix socket on this host.
    Unix(PathBuf),
    /// A host, by name or number, and a port.
    Tcp {
        /// Name or number, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// Why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a server address ({problem}): write HOST:PORT, [IPV6]:PORT or unix:/path")]
pub struct AddressError {
    text: String,
    problem: &'static str,
}

impl ServerAddress {
    /// The socket addresses behind it, in the order in which to try them; none for a Unix socket. Numbers and
    /// `localhost` never reach the resolver; any other name is looked up, for as long as the system's resolver takes.
    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let Self::Tcp { host, port } = self else { return Ok(Vec::new()) };
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, *port)]);
        }
        if host.eq_ignore_ascii_case("localhost") {
            let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(loopback.map(|ip| SocketAddr::new(ip, *port)).to_vec());
        }
        (host.as_str(), *port).to_socket_addrs().map(Iterator::collect)
    }
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |problem| AddressError { text: text.into(), problem };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                p if !p.starts_with('/') => Err(error("the path after unix: must begin with /")),
                // sun_path of sockaddr_un holds 108 bytes with its closing zero (unix(7)).
                p if p.len() > 107 => Err(error("a Unix socket's path has at most 107 bytes")),
                p if p.contains('\0') => Err(error("a zero byte in the path")),
                p => Ok(Self::Unix(p.into())),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| error("no port"))?;
        let port = match port.parse::<u16>() {
            Ok(0) | Err(_) => return Err(error("the port is not a number from 1 to 65535")),
            Ok(port) => port,
        };
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(error("no IPv6 address between the brackets")),
            None if host.contains(':') => return Err(error("an IPv6 address needs brackets")),
            None => host,
        };
        let name_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
        match host {
            "" => Err(error("no host")),
            h if !h.bytes().all(name_byte) => {
                Err(error("a host name has only letters, digits, dots and hyphens"))
            }
            h => Ok(Self::Tcp { host: h.into(), port }),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_read_and_shown_alike() {
        for text in
            ["10.0.0.1:7070", "gpu-7.example.org:1", "[::1]:7070", "localhost:65535", "unix:/run/a/b.sock"]
        {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("", "no port"),
            ("host", "no port"),
            ("host:", "not a number"),
            ("host:0", "not a number"),
            ("host:70000", "not a number"),
            (":7070", "no host"),
            ("::1:7070", "brackets"),
            ("[::1:7070", "brackets"),
            ("[host]:7070", "no IPv6"),
            ("tcp://host:7070", "brackets"),
            ("ho st:7070", "letters"),
            ("unix:relative", "begin with /"),
        ] {
            let said = text.parse::<ServerAddress>().unwrap_err().to_string();
            assert!(said.contains(problem), "{text}: {said}");
        }
        assert!(format!("unix:/{}", "x".repeat(107)).parse::<ServerAddress>().is_err());
    }

    #[test]
    fn numbers_and_localhost_need_no_resolver() {
        let v6: ServerAddress = "[::1]:5".parse().unwrap();
        assert_eq!(v6.resolve().unwrap(), ["[::1]:5".parse().unwrap()]);
        let local: ServerAddress = "localhost:5".parse().unwrap();
        assert_eq!(local.resolve().unwrap().len(), 2);
    }
}
