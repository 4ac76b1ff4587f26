//! The handshake: what client and server agree on before the first request.
//!
//! # Invariants
//! At most [`MOST_REPLIES`] replies are read for an option, each with at most [`LONGEST_REPLY`]
//! bytes, and the whole handshake ends at the receiver's deadline.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

use extant_units::exact_u32;
use rustls::ClientConnection;

use crate::address::Address;
use crate::channel::{Channel, Receiver};
use crate::error::NbdError;
use crate::export::Export;
use crate::loss::{Loss, violation};
use crate::message::harmless;
use crate::protocol::{
    FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION, OPTION_REPLY, answer, info, option,
};
use crate::socket::{Socket, left};
use crate::tls;

/// The longest reply to an option: a string of 4096 bytes and what goes with it.
const LONGEST_REPLY: u32 = 8192;
/// The most replies to one option.
const MOST_REPLIES: usize = 64;
/// The most characters of a server's message that are repeated.
const LONGEST_MESSAGE: usize = 200;

/// A connection that has gone through the handshake.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) channel: Arc<Channel>,
    pub(crate) receiver: Receiver,
    pub(crate) export: Export,
    /// Replies to reads are structured.
    pub(crate) structured: bool,
}

/// One reply to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

/// Connects to the server of `address` and opens the export.
///
/// # Errors
/// See [`NbdError`].
pub(crate) fn negotiate(address: &Address, deadline: Instant) -> Result<Negotiated, NbdError> {
    let socket = match &address.prepared.dial {
        Some(dial) => dial(left(deadline)).map(|fd| Socket::of(&address.endpoint, fd)),
        None => Socket::connect(&address.endpoint, deadline),
    };
    let socket = socket.map_err(|source| NbdError::Unreachable {
        server: address.endpoint.to_string(),
        source,
    })?;
    let channel = Channel::new(socket);
    let mut handshake = Handshake {
        receiver: Receiver::until(&channel, deadline),
        channel,
    };
    handshake.greet().map_err(broken)?;
    if let Some(tls) = &address.tls {
        handshake.start_tls(tls::begin(address, tls)?, deadline)?;
    }
    let structured = handshake.ask_structured().map_err(broken)?;
    let export = handshake.go(&address.export)?;
    let sent = handshake.channel.leave_handshake(address.timeout);
    sent.map_err(broken)?;
    Ok(Negotiated {
        channel: handshake.channel,
        receiver: handshake.receiver.without_deadline(),
        export,
        structured,
    })
}

/// The error for a handshake that broke.
fn broken(error: io::Error) -> NbdError {
    match Loss::of(&error) {
        Loss::Violation(what) => NbdError::Protocol {
            what,
            cause: Some(error),
        },
        other => NbdError::Handshake {
            what: other.to_string(),
            cause: error,
        },
    }
}

struct Handshake {
    channel: Arc<Channel>,
    receiver: Receiver,
}

impl Handshake {
    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.receiver.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Exchanges the greetings.
    fn greet(&mut self) -> io::Result<()> {
        if u64::from_be_bytes(self.read()?) != GREETING {
            return Err(violation("what listens there is no NBD server"));
        }
        if u64::from_be_bytes(self.read()?) != OPTION {
            return Err(violation("the server knows only the oldstyle handshake"));
        }
        let flags = u16::from_be_bytes(self.read()?);
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(violation(
                "the server does not know the fixed newstyle handshake",
            ));
        }
        let own = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
        self.channel.send(&[&own.to_be_bytes()])
    }

    fn send_option(&self, option: u32, data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).map_err(|_| violation("an option is too long"))?;
        self.channel.send(&[
            &OPTION.to_be_bytes(),
            &option.to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ])
    }

    fn read_reply(&mut self, option: u32) -> io::Result<Reply> {
        if u64::from_be_bytes(self.read()?) != OPTION_REPLY {
            return Err(violation(
                "the reply to an option has the wrong magic number",
            ));
        }
        let replied = u32::from_be_bytes(self.read()?);
        if replied != option {
            return Err(violation(format!(
                "a reply to option {replied} instead of {option}"
            )));
        }
        let kind = u32::from_be_bytes(self.read()?);
        let len = u32::from_be_bytes(self.read()?);
        if len > LONGEST_REPLY {
            return Err(violation(format!("a reply of {len} bytes to an option")));
        }
        let mut data = vec![0; len as usize];
        self.receiver.read_exact(&mut data)?;
        Ok(Reply { kind, data })
    }

    /// Goes over to TLS. What follows is sealed, and was not read before.
    fn start_tls(&mut self, tls: ClientConnection, deadline: Instant) -> Result<(), NbdError> {
        self.send_option(option::STARTTLS, &[]).map_err(broken)?;
        let reply = self.read_reply(option::STARTTLS).map_err(broken)?;
        if reply.kind & answer::ERROR != 0 {
            return Err(NbdError::tls("the server has no TLS"));
        }
        if reply.kind != answer::ACK || !reply.data.is_empty() {
            let what = format!("reply {} to the start of TLS", reply.kind);
            return Err(NbdError::protocol(what));
        }
        let started = self.channel.start_tls(tls, deadline);
        started.map_err(NbdError::tls)
    }

    /// Asks for structured replies. A server that does not know them gives simple ones.
    fn ask_structured(&mut self) -> io::Result<bool> {
        self.send_option(option::STRUCTURED_REPLY, &[])?;
        let reply = self.read_reply(option::STRUCTURED_REPLY)?;
        match reply.kind {
            answer::ACK => Ok(true),
            kind if kind & answer::ERROR != 0 => Ok(false),
            kind => Err(violation(format!("reply {kind} to an option"))),
        }
    }

    /// Opens the export and learns what it is.
    fn go(&mut self, name: &str) -> Result<Export, NbdError> {
        let mut data = Vec::with_capacity(name.len() + 8);
        // An address has checked the name's length.
        let len = exact_u32(name.len() as u64);
        data.extend_from_slice(&len.to_be_bytes());
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&1_u16.to_be_bytes());
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        self.send_option(option::GO, &data).map_err(broken)?;
        let (mut export, mut blocks) = (None, None);
        for _ in 0..MOST_REPLIES {
            let reply = self.read_reply(option::GO).map_err(broken)?;
            match reply.kind {
                answer::ACK => return finish(export, blocks).map_err(broken),
                answer::INFO => learn(&reply.data, &mut export, &mut blocks).map_err(broken)?,
                kind if kind & answer::ERROR != 0 => return Err(refused(name, &reply)),
                kind => return Err(broken(violation(format!("reply {kind} to an option")))),
            }
        }
        Err(broken(violation(
            "the information about the export has no end",
        )))
    }
}

/// Takes what one reply says of the export.
fn learn(
    data: &[u8],
    export: &mut Option<Export>,
    blocks: &mut Option<[u32; 3]>,
) -> io::Result<()> {
    let Some((kind, rest)) = data.split_first_chunk() else {
        return Err(violation("information about the export without a kind"));
    };
    let wrong = || violation("information about the export has the wrong length");
    match u16::from_be_bytes(*kind) {
        info::EXPORT => {
            let (size, flags) = rest.split_first_chunk().ok_or_else(wrong)?;
            let flags: [u8; 2] = flags.try_into().map_err(|_| wrong())?;
            let (size, flags) = (u64::from_be_bytes(*size), u16::from_be_bytes(flags));
            *export = Some(Export::new(size, flags)?);
        }
        info::BLOCK_SIZE => {
            let rest: [u8; 12] = rest.try_into().map_err(|_| wrong())?;
            let [a, b, c, d, e, f, g, h, i, j, k, l] = rest;
            let sizes = [[a, b, c, d], [e, f, g, h], [i, j, k, l]];
            *blocks = Some(sizes.map(u32::from_be_bytes));
        }
        // Names and descriptions are of no use here.
        _ => {}
    }
    Ok(())
}

fn finish(export: Option<Export>, blocks: Option<[u32; 3]>) -> io::Result<Export> {
    let export = export.ok_or_else(|| violation("the server does not say how long it is"))?;
    match blocks {
        Some(sizes) => export.with_blocks(sizes),
        None => Ok(export),
    }
}

/// The error for a reply that refuses the export.
fn refused(name: &str, reply: &Reply) -> NbdError {
    let mut why = match reply.kind {
        answer::UNSUPPORTED => "the server does not know NBD_OPT_GO".to_owned(),
        kind => answer::words(kind).to_owned(),
    };
    let message = shown(&reply.data);
    if !message.is_empty() {
        why = format!("{why}: {message}");
    }
    NbdError::Refused {
        export: name.to_owned(),
        why,
    }
}

/// The beginning of a server's message, without what a terminal would obey.
pub(crate) fn shown(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let beginning: String = text.trim_end().chars().take(LONGEST_MESSAGE).collect();
    harmless(&beginning)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_handshake_that_broke_keeps_its_cause() {
        let cause = |error: &NbdError| {
            let cause = error.source().and_then(|cause| cause.downcast_ref());
            cause.map(io::Error::kind)
        };
        let reset = broken(io::ErrorKind::ConnectionReset.into());
        assert!(matches!(reset, NbdError::Handshake { .. }));
        assert_eq!(cause(&reset), Some(io::ErrorKind::ConnectionReset));
        let wrong = broken(violation("no magic"));
        assert_eq!(
            wrong.to_string(),
            "the server breaks the protocol: no magic"
        );
        assert_eq!(cause(&wrong), Some(io::ErrorKind::InvalidData));
    }
}
