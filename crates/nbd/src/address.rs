//! The address of an export: `nbd://host[:port]/export` and its relatives.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

/// The port where none is given.
const PORT: u16 = 10809;
/// The schemes: the word, whether TLS is asked for, whether the server is at a Unix socket.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("nbd://", false, false),
    ("nbds://", true, false),
    ("nbd+unix://", false, true),
    ("nbds+unix://", true, true),
];
/// The longest export name of the protocol, in bytes.
const LONGEST_NAME: usize = 4096;
/// The most connections that an address may ask for.
const MOST_CONNECTIONS: usize = 16;
/// Connections to a server that allows several, unless the address says otherwise.
const CONNECTIONS: usize = 4;
/// How long the reply of a request may take, unless the address says otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a lost server is looked for, unless the address says otherwise.
const RECONNECT: Duration = Duration::from_secs(30);

/// The server and the name of an export, and how it is used.
///
/// ```
/// use extant_nbd::Address;
///
/// let address: Address = "nbd://backup.example:10809/disk?timeout=5".parse()?;
/// assert_eq!(address.export(), "disk");
/// # Ok::<(), extant_nbd::AddressError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Address {
    pub(crate) endpoint: Endpoint,
    pub(crate) export: String,
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
    pub(crate) reconnect: Duration,
    text: String,
    /// Results of the look-ups of a process that confines itself.
    pub(crate) prepared: Prepared,
}

/// Files and names of the host that connecting needs, for a process that cannot ask it any more.
#[derive(Clone, Default)]
pub(crate) struct Prepared {
    /// Another process's part; none where this process connects by itself.
    pub(crate) dial: Option<Dial>,
    /// The certificates; none if they are read each time.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// Connects to the server of one address, within this time.
pub type Dial = Arc<dyn Fn(Duration) -> io::Result<OwnedFd> + Send + Sync>;

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("dial", &self.dial.is_some())
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// The socket that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// How the server and the client prove their identity.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tls {
    /// A directory with `ca-cert.pem`, and perhaps `client-cert.pem` and `client-key.pem`.
    pub(crate) certificates: Option<PathBuf>,
    /// The name that the server's certificate must have, if not that of the host.
    pub(crate) hostname: Option<String>,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

fn bad(what: impl Into<String>) -> AddressError {
    AddressError(what.into())
}

impl Address {
    /// Returns whether `text` begins as an address does. Everything else is a path of the host.
    pub fn is_address(text: &[u8]) -> bool {
        Address::scheme_len(text).is_some()
    }

    /// The length of the scheme that `text` begins with.
    pub fn scheme_len(text: &[u8]) -> Option<usize> {
        let scheme = SCHEMES
            .iter()
            .find(|(word, ..)| text.starts_with(word.as_bytes()));
        scheme.map(|(word, ..)| word.len())
    }

    /// Has another process connect: each connection is one that `dial` returns. `dial` calls
    /// [`crate::dial`] there, for the same address.
    pub fn connect_by(&mut self, dial: Dial) {
        self.prepared.dial = Some(dial);
    }

    /// The name of the export.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// Asks for TLS parameters where the scheme did.
    fn tls(&mut self, key: &str) -> Result<&mut Tls, AddressError> {
        let word = format!("{key}: only nbds:// and nbds+unix:// use TLS");
        self.tls.as_mut().ok_or_else(|| bad(word))
    }

    /// Applies one parameter of the query.
    fn set(&mut self, key: &str, value: String) -> Result<(), AddressError> {
        match key {
            "socket" => {
                let Endpoint::Unix(path) = &mut self.endpoint else {
                    return Err(bad("socket: only nbd+unix:// has one"));
                };
                if value.is_empty() {
                    return Err(bad("socket: a path is needed"));
                }
                // The process may change its directory before it connects again.
                *path = std::path::absolute(&value).map_err(|why| bad(format!("socket: {why}")))?;
            }
            "tls-certificates" => {
                let dir = std::path::absolute(&value);
                let dir = dir.map_err(|why| bad(format!("{key}: {why}")))?;
                self.tls(key)?.certificates = Some(dir);
            }
            "tls-hostname" => self.tls(key)?.hostname = Some(value),
            "connections" => {
                let count = value.parse().ok();
                let count = count.filter(|count| (1..=MOST_CONNECTIONS).contains(count));
                let why = || {
                    bad(format!(
                        "connections: a number from 1 to {MOST_CONNECTIONS}"
                    ))
                };
                self.connections = count.ok_or_else(why)?;
            }
            "timeout" => {
                let seconds = seconds(key, &value)?;
                if seconds.is_zero() {
                    return Err(bad("timeout: at least 1 second"));
                }
                self.timeout = seconds;
            }
            "reconnect" => self.reconnect = seconds(key, &value)?,
            _ => return Err(bad(format!("{key}: there is no such parameter"))),
        }
        Ok(())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let scheme = SCHEMES.iter().find(|(word, ..)| text.starts_with(word));
        let &(word, tls, unix) = scheme.ok_or_else(|| bad("an address begins with nbd://"))?;
        let rest = &text[word.len()..];
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoint = match (unix, authority) {
            (true, "") => Endpoint::Unix(PathBuf::new()),
            (true, _) => return Err(bad("a Unix socket has no host: nbd+unix:///export?socket=")),
            (false, authority) => tcp(authority)?,
        };
        let export = decode(export)?;
        if export.len() > LONGEST_NAME {
            return Err(bad("the name of the export is longer than 4096 bytes"));
        }
        let mut address = Address {
            endpoint,
            export,
            tls: tls.then(Tls::default),
            connections: CONNECTIONS,
            timeout: TIMEOUT,
            reconnect: RECONNECT,
            text: text.to_owned(),
            prepared: Prepared::default(),
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address.set(key, decode(value)?)?;
        }
        if address.endpoint == Endpoint::Unix(PathBuf::new()) {
            return Err(bad(
                "a Unix socket is needed: nbd+unix:///export?socket=PATH",
            ));
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Endpoint {
    /// The address of the export with the name `export` there, as a client is given it.
    pub(crate) fn address(&self, export: &str) -> String {
        let export = encode(export.as_bytes());
        match self {
            Endpoint::Tcp { .. } => format!("nbd://{self}/{export}"),
            Endpoint::Unix(path) => {
                let path = encode(path.as_os_str().as_bytes());
                format!("nbd+unix:///{export}?socket={path}")
            }
        }
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn tcp(authority: &str) -> Result<Endpoint, AddressError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or_else(|| bad("a ] is missing"))?;
            match behind.strip_prefix(':') {
                None if behind.is_empty() => (host, None),
                None => return Err(bad("only a port follows the ]")),
                Some(port) => (host, Some(port)),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(bad("a host is needed: nbd://host/export"));
    }
    let port = match port {
        None => PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&port| port > 0)
            .ok_or_else(|| bad(format!("{port:?} is no port")))?,
    };
    let host = decode(host)?;
    Ok(Endpoint::Tcp { host, port })
}

fn seconds(key: &str, value: &str) -> Result<Duration, AddressError> {
    let seconds: Option<u32> = value.parse().ok();
    let seconds = seconds.ok_or_else(|| bad(format!("{key}: a number of seconds")))?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Replaces each `%` and two hexadecimal digits by the byte that they name.
fn decode(text: &str) -> Result<String, AddressError> {
    let why = || bad("a % is followed by two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or_else(why)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (Some(high), Some(low)) = (digit(digits[0]), digit(digits[1])) else {
            return Err(why());
        };
        let byte = u8::try_from(high << 4 | low);
        bytes.push(byte.expect("two digits of four bits"));
        rest = behind;
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("the address is not UTF-8"))?;
    if text.contains('\0') {
        return Err(bad("the address contains a zero byte"));
    }
    Ok(text)
}

/// The reverse of [`decode`], of what an address or a shell could take for something else.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                text.push(byte.into());
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        text.parse()
            .map_err(|error: AddressError| error.to_string())
    }

    fn tcp(text: &str) -> (String, u16, String) {
        let address = parse(text).unwrap();
        match address.endpoint {
            Endpoint::Tcp { host, port } => (host, port, address.export),
            Endpoint::Unix(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn hosts_ports_and_exports() {
        assert_eq!(tcp("nbd://h"), ("h".into(), 10809, String::new()));
        assert_eq!(tcp("nbd://h/"), ("h".into(), 10809, String::new()));
        assert_eq!(tcp("nbd://h:7/a/b"), ("h".into(), 7, "a/b".into()));
        assert_eq!(tcp("nbd://[::1]/e"), ("::1".into(), 10809, "e".into()));
        assert_eq!(
            tcp("nbds://[fe80::2]:9/%65%2f"),
            ("fe80::2".into(), 9, "e/".into())
        );
        let unix = parse("nbd+unix:///disk%201?socket=/run/a%3Fb").unwrap();
        assert_eq!(unix.endpoint, Endpoint::Unix("/run/a?b".into()));
        assert_eq!((unix.export.as_str(), unix.tls), ("disk 1", None));
    }

    #[test]
    fn an_address_that_is_made_is_read_again() {
        let unix = Endpoint::Unix("/run/a b?c%&ä".into());
        let told = unix.address("disk 1/é?");
        let read = parse(&told).unwrap();
        assert_eq!((read.endpoint, read.export.as_str()), (unix, "disk 1/é?"));
        let host = "::1".to_owned();
        let v6 = Endpoint::Tcp { host, port: 7 };
        assert_eq!(v6.address(""), "nbd://[::1]:7/");
        assert_eq!(parse(&v6.address("")).unwrap().endpoint, v6);
    }

    #[test]
    fn parameters() {
        let text = "nbds://h/e?connections=2&timeout=5&reconnect=0&tls-hostname=x\
                    &tls-certificates=/etc/nbd";
        let address = parse(text).unwrap();
        assert_eq!(address.connections, 2);
        assert_eq!(address.timeout, Duration::from_secs(5));
        assert_eq!(address.reconnect, Duration::ZERO);
        let tls = address.tls.unwrap();
        assert_eq!(tls.hostname.as_deref(), Some("x"));
        assert_eq!(tls.certificates, Some("/etc/nbd".into()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("nbd://", "a host is needed"),
            ("nbd:///e", "a host is needed"),
            ("nbd://h:0/e", "\"0\" is no port"),
            ("nbd://h:99999", "no port"),
            ("nbd://[::1", "a ] is missing"),
            ("nbd://[::1]7", "only a port"),
            ("nbd+unix:///e", "a Unix socket is needed"),
            ("nbd+unix://h/e?socket=/s", "no host"),
            ("nbd+unix:///e?socket=", "a path is needed"),
            ("nbd://h/e?socket=/s", "only nbd+unix"),
            ("nbd://h/%4", "two hexadecimal"),
            ("nbd://h/%zz", "two hexadecimal"),
            ("nbd://h/%00", "zero byte"),
            ("nbd://h/%ff", "not UTF-8"),
            ("nbd://h/e?connections=0", "from 1 to 16"),
            ("nbd://h/e?timeout=0", "at least 1"),
            ("nbd://h/e?reconnect=soon", "number of seconds"),
            ("nbd://h/e?tls-hostname=x", "only nbds"),
            ("nbd://h/e?speed=9", "no such parameter"),
            ("http://h", "begins with nbd"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
