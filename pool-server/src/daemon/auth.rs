//! Who may have a session.
//!
//! A token, where the server has a token file and the client sends one, decides alone: the right one lets in from
//! anywhere, a wrong one from nowhere. Without a token:
//!
//! | connection | let in |
//! |---|---|
//! | Unix socket | the daemon's own user, and root: both could take the daemon over anyway |
//! | TCP from a loopback address | the daemon's own user (the kernel says whose the other socket is); root only where the daemon is root's, since proxies that forward foreign connections often run as root |
//! | TCP from a loopback address, with `allow_anonymous_loopback` | every user of this host |
//! | TCP from elsewhere | nobody |

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use gpupool_protocol::control::Token;
use gpupool_protocol::small_file;

use super::peer::tcp_owner;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this user on this host.
    Unix {
        /// Its effective user at the time of connecting.
        uid: u32,
    },
    /// Something behind this address.
    Tcp {
        /// The other end.
        peer: SocketAddr,
        /// This end.
        local: SocketAddr,
    },
}

/// The rules and the tokens.
#[derive(Debug)]
pub struct Authority {
    tokens: Option<Tokens>,
    allow_anonymous_loopback: bool,
    own_uid: u32,
}

impl Authority {
    /// Reads the token file, if there is one.
    pub fn new(token_file: Option<&Path>, allow_anonymous_loopback: bool) -> anyhow::Result<Self> {
        let tokens = token_file.map(Tokens::read).transpose()?;
        Ok(Self { tokens, allow_anonymous_loopback, own_uid: rustix::process::geteuid().as_raw() })
    }

    /// Are there tokens at all?
    pub fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// The tenant's name, or why there is no session, in words for the client.
    pub fn admit(&self, peer: &Peer, token: Option<&Token>) -> Result<String, String> {
        match (&self.tokens, token) {
            (Some(tokens), Some(token)) => match tokens.owner(token) {
                Some(name) => Ok(name.into()),
                None => {
                    Err("the token is not one of this server's; check GPUPOOL_TOKEN or GPUPOOL_TOKEN_FILE"
                        .into())
                }
            },
            _ => self.admit_without_token(peer),
        }
    }

    fn admit_without_token(&self, peer: &Peer) -> Result<String, String> {
        let by_user = |uid: u32| format!("uid {uid}");
        match *peer {
            Peer::Unix { uid } if uid == self.own_uid || uid == 0 => Ok(by_user(uid)),
            Peer::Tcp { peer, .. } if is_loopback(peer.ip()) && self.allow_anonymous_loopback => {
                Ok("loopback".into())
            }
            Peer::Tcp { peer, local } if is_loopback(peer.ip()) => match tcp_owner(peer, local) {
                Some(uid) if uid == self.own_uid => Ok(by_user(uid)),
                _ => Err(self.refusal()),
            },
            _ => Err(self.refusal()),
        }
    }

    fn refusal(&self) -> String {
        let own = self.own_uid;
        match self.tokens {
            Some(_) => "a token is needed; set GPUPOOL_TOKEN_FILE, or GPUPOOL_TOKEN".into(),
            None => format!(
                "the server has no token file and takes only programs of its own user (uid {own}) on its own host; its \
                 operator can start it with --token-file"
            ),
        }
    }
}

/// Loopback, also when it is written as an IPv4 address inside IPv6.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The tokens of a file, as hashes under a key of this process: how long a comparison takes then says nothing about
/// a token, and a memory dump holds none.
#[derive(Debug)]
struct Tokens {
    key: [u8; 32],
    known: Vec<(blake3::Hash, String)>,
}

/// Shorter ones can be guessed.
const TOKEN_MIN: usize = 16;

impl Tokens {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let (content, meta) =
            small_file::read(file).with_context(|| format!("cannot read the token file {shown}"))?;
        ensure!(
            meta.mode() & 0o007 == 0,
            "the token file {shown} is open to everybody; say chmod 640 {shown}"
        );
        let tokens =
            Self::parse(&content).with_context(|| format!("the token file {shown} cannot be used"))?;
        ensure!(
            !tokens.known.is_empty(),
            "the token file {shown} holds no token; write one a line: NAME TOKEN"
        );
        Ok(tokens)
    }

    /// Lines of `NAME TOKEN`; empty ones and those that begin with `#` do not count. Errors never show a token.
    fn parse(content: &str) -> anyhow::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).context("the system gives no random bytes")?;
        let mut tokens = Self { key, known: Vec::new() };
        for (number, line) in content.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[name, token] = words.as_slice() else {
                bail!("line {number} has {} words instead of two, NAME TOKEN", words.len());
            };
            ensure!(token.len() >= TOKEN_MIN, "line {number}: a token needs at least {TOKEN_MIN} characters");
            let hash = tokens.hash(token);
            ensure!(
                tokens.known.iter().all(|(h, _)| *h != hash),
                "line {number} repeats the token of another line"
            );
            tokens.known.push((hash, name.into()));
        }
        Ok(tokens)
    }

    fn hash(&self, token: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.key, token.as_bytes())
    }

    fn owner(&self, token: &Token) -> Option<&str> {
        let hash = self.hash(token.expose());
        self.known.iter().find(|(known, _)| *known == hash).map(|(_, name)| name.as_str())
    }
}

/// Refuses settings under which tokens would cross a plain network, or strangers would come in, without the operator
/// having said so.
pub fn check_listen(
    listen: Option<SocketAddr>,
    insecure: bool,
    token_file: Option<&PathBuf>,
) -> anyhow::Result<()> {
    let Some(address) = listen.filter(|a| !is_loopback(a.ip())) else { return Ok(()) };
    ensure!(
        insecure,
        "listening on {address} would carry tokens and data over a plain network connection; listen on 127.0.0.1 (and \
         let clients come through an encrypted tunnel), or say --insecure here and `insecure = true` at the clients"
    );
    ensure!(
        token_file.is_some(),
        "listening on {address} needs --token-file: nobody else could be let in from there"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ALICE: &str = "alice-0123456789abcdef";

    fn authority(tokens: Option<&str>, anonymous: bool) -> Authority {
        Authority {
            tokens: tokens.map(|t| Tokens::parse(t).unwrap()),
            allow_anonymous_loopback: anonymous,
            own_uid: 1000,
        }
    }

    fn tcp(peer: &str) -> Peer {
        Peer::Tcp { peer: peer.parse().unwrap(), local: "127.0.0.1:7070".parse().unwrap() }
    }

    #[test]
    fn a_token_decides_alone() {
        let authority =
            authority(Some(&format!("# tenants\n\nalice {ALICE}\nbob bob-0123456789abcdef\n")), false);
        let (right, wrong) = (Token::new(ALICE), Token::new("alice-0123456789abcdeX"));
        for peer in [Peer::Unix { uid: 1234 }, tcp("192.0.2.1:99"), tcp("127.0.0.1:99")] {
            assert_eq!(authority.admit(&peer, Some(&right)).unwrap(), "alice");
            assert!(authority.admit(&peer, Some(&wrong)).unwrap_err().contains("not one of this server's"));
        }
        assert!(
            authority.admit(&Peer::Unix { uid: 1000 }, Some(&wrong)).is_err(),
            "also for the daemon's own user"
        );
    }

    #[test]
    fn without_a_token_only_the_own_user_and_root_come_in() {
        for authority in [authority(None, false), authority(Some(&format!("a {ALICE}")), false)] {
            assert_eq!(authority.admit(&Peer::Unix { uid: 1000 }, None).unwrap(), "uid 1000");
            assert_eq!(authority.admit(&Peer::Unix { uid: 0 }, None).unwrap(), "uid 0");
            assert!(authority.admit(&Peer::Unix { uid: 1001 }, None).is_err());
            assert!(authority.admit(&tcp("192.0.2.1:99"), None).is_err());
            // No such connection exists, so the kernel names no owner.
            assert!(authority.admit(&tcp("127.0.0.1:1"), None).is_err());
        }
        let open = authority(None, true);
        assert_eq!(open.admit(&tcp("127.0.0.1:1"), None).unwrap(), "loopback");
        assert_eq!(open.admit(&tcp("[::ffff:127.0.0.1]:1"), None).unwrap(), "loopback");
        assert!(open.admit(&tcp("192.0.2.1:99"), None).is_err());
    }

    #[test]
    fn token_files_are_checked_and_their_errors_show_no_token() {
        for (content, part) in [
            ("alice", "two, NAME TOKEN"),
            ("alice two-words here-0123456789", "3 words"),
            ("alice tooshort", "at least 16"),
            ("a 0123456789abcdef\nb 0123456789abcdef", "line 2 repeats"),
        ] {
            let said = Tokens::parse(content).unwrap_err().to_string();
            assert!(said.contains(part) && !said.contains("0123456789"), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        std::fs::write(&path, format!("alice {ALICE}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Authority::new(Some(&path), false).unwrap_err().to_string().contains("chmod 640"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Authority::new(Some(&path), false).unwrap().has_tokens());
        std::fs::write(&path, "# nobody\n").unwrap();
        assert!(Authority::new(Some(&path), false).unwrap_err().to_string().contains("holds no token"));
    }

    #[test]
    fn a_plain_network_needs_the_operators_word_and_tokens() {
        let file = PathBuf::from("/etc/gpupool/tokens");
        let network: Option<SocketAddr> = Some("0.0.0.0:7070".parse().unwrap());
        assert!(check_listen(network, false, Some(&file)).unwrap_err().to_string().contains("--insecure"));
        assert!(check_listen(network, true, None).unwrap_err().to_string().contains("--token-file"));
        check_listen(network, true, Some(&file)).unwrap();
        check_listen(Some("127.0.0.1:7070".parse().unwrap()), false, None).unwrap();
        check_listen(Some("[::1]:7070".parse().unwrap()), false, None).unwrap();
        check_listen(None, false, None).unwrap();
    }
}
