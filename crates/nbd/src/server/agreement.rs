//! The handshake on the side of the server.
//!
//! # Invariants
//! A client sends at most [`MOST_OPTIONS`] options, of which at most [`LONGEST_OPTION`] bytes are
//! kept, and the whole handshake ends at the receiver's deadline.

use std::io::{self, Read};

use crate::channel::{Channel, Receiver};
use crate::loss::violation;
use crate::protocol::{
    FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION, OPTION_REPLY, answer, info, option,
};
use crate::server::service::Service;

/// The longest option that is understood: a name of 4096 bytes and what goes with it.
const LONGEST_OPTION: u32 = 8192;
/// The longest option that is skipped; a longer one ends the connection.
const LONGEST_SKIPPED: u32 = 1 << 20;
/// The most options of one handshake.
const MOST_OPTIONS: usize = 128;

/// How a handshake ended that broke no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Agreement {
    /// The client sends requests from now on.
    Serve {
        /// Replies to reads are structured.
        structured: bool,
    },
    /// The client has learned what it wanted.
    Leave,
}

/// Goes through the handshake with a client.
///
/// # Errors
/// The client breaks the protocol, is too slow, or its connection ends.
pub(super) fn agree(
    service: &Service,
    channel: &Channel,
    input: &mut Receiver,
) -> io::Result<Agreement> {
    let flags = FIXED_NEWSTYLE | NO_ZEROES;
    channel.send(&[
        &GREETING.to_be_bytes(),
        &OPTION.to_be_bytes(),
        &flags.to_be_bytes(),
    ])?;
    let told = u32::from_be_bytes(read(input)?);
    if told & !u32::from(flags) != 0 || told & u32::from(FIXED_NEWSTYLE) == 0 {
        return Err(violation(format!("the client's flags are {told:#x}")));
    }
    let mut haggling = Haggling {
        service,
        channel,
        zeroes: told & u32::from(NO_ZEROES) == 0,
        structured: false,
    };
    for _ in 0..MOST_OPTIONS {
        if let Some(agreement) = haggling.answer(input)? {
            return Ok(agreement);
        }
    }
    Err(violation("options without end"))
}

fn read<const N: usize>(input: &mut Receiver) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

struct Haggling<'a> {
    service: &'a Service,
    channel: &'a Channel,
    /// The old reply to `EXPORT_NAME` ends with zeros.
    zeroes: bool,
    structured: bool,
}

impl Haggling<'_> {
    /// Reads and answers one option; returns how the handshake ends, if it does.
    fn answer(&mut self, input: &mut Receiver) -> io::Result<Option<Agreement>> {
        if u64::from_be_bytes(read(input)?) != OPTION {
            return Err(violation("an option with the wrong magic number"));
        }
        let asked = u32::from_be_bytes(read(input)?);
        let len = u32::from_be_bytes(read(input)?);
        if len > LONGEST_OPTION {
            return self.skip(input, asked, len);
        }
        let mut data = vec![0; len as usize];
        input.read_exact(&mut data)?;
        match asked {
            option::EXPORT_NAME => return self.open_plainly(&data).map(Some),
            option::ABORT => {
                // The client need not wait for it.
                let _ = self.reply(asked, answer::ACK, &[]);
                return Ok(Some(Agreement::Leave));
            }
            option::LIST => self.list(asked, &data)?,
            option::INFO | option::GO => return self.open(asked, &data),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.reply(asked, answer::ACK, &[])?;
            }
            option::STRUCTURED_REPLY => self.reply(asked, answer::INVALID, &[])?,
            _ => self.reply(asked, answer::UNSUPPORTED, &[])?,
        }
        Ok(None)
    }

    /// Reads past an option that is too long to be meant.
    fn skip(&self, input: &mut Receiver, asked: u32, len: u32) -> io::Result<Option<Agreement>> {
        if asked == option::EXPORT_NAME || len > LONGEST_SKIPPED {
            return Err(violation(format!("an option of {len} bytes")));
        }
        let skipped = io::copy(&mut input.take(len.into()), &mut io::sink())?;
        if skipped < u64::from(len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.reply(asked, answer::TOO_LARGE, &[])?;
        Ok(None)
    }

    fn reply(&self, asked: u32, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).map_err(|_| violation("a reply is too long"))?;
        let mut all: Vec<u8> = Vec::new();
        all.extend_from_slice(&OPTION_REPLY.to_be_bytes());
        all.extend_from_slice(&asked.to_be_bytes());
        all.extend_from_slice(&kind.to_be_bytes());
        all.extend_from_slice(&len.to_be_bytes());
        parts.iter().for_each(|part| all.extend_from_slice(part));
        self.channel.send(&[&all])
    }

    fn list(&self, asked: u32, data: &[u8]) -> io::Result<()> {
        if !data.is_empty() {
            return self.reply(asked, answer::INVALID, &[]);
        }
        let name = self.service.name().as_bytes();
        let len = u32::try_from(name.len()).map_err(|_| violation("the name is too long"))?;
        self.reply(asked, answer::SERVER, &[&len.to_be_bytes(), name])?;
        self.reply(asked, answer::ACK, &[])
    }

    /// Answers `INFO` and `GO`; after a `GO` that succeeds the client sends requests.
    fn open(&self, asked: u32, data: &[u8]) -> io::Result<Option<Agreement>> {
        let Some(name) = name_in(data) else {
            self.reply(asked, answer::INVALID, &[])?;
            return Ok(None);
        };
        if !self.service.is_named(name) {
            self.reply(asked, answer::UNKNOWN, &[])?;
            return Ok(None);
        }
        let export = self.service.export();
        let kind = info::EXPORT.to_be_bytes();
        self.reply(asked, answer::INFO, &[&kind, &export.size_and_flags()])?;
        let kind = info::BLOCK_SIZE.to_be_bytes();
        self.reply(asked, answer::INFO, &[&kind, &export.block_sizes()])?;
        self.reply(asked, answer::ACK, &[])?;
        let structured = self.structured;
        Ok((asked == option::GO).then_some(Agreement::Serve { structured }))
    }

    /// Answers `EXPORT_NAME`, which has no reply for a failure.
    fn open_plainly(&self, name: &[u8]) -> io::Result<Agreement> {
        if !self.service.is_named(name) {
            return Err(violation("there is no export of the name asked for"));
        }
        let zeroes: &[u8] = if self.zeroes { &[0; 124] } else { &[] };
        let export = self.service.export().size_and_flags();
        self.channel.send(&[&export, zeroes])?;
        Ok(Agreement::Serve {
            structured: self.structured,
        })
    }
}

/// The name in the data of `INFO` or `GO`: its length, itself, the number of kinds of information
/// that are asked for, and those.
fn name_in(data: &[u8]) -> Option<&[u8]> {
    let (len, rest) = data.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (name, rest) = rest.split_at_checked(len)?;
    let (count, kinds) = rest.split_first_chunk()?;
    let count = usize::from(u16::from_be_bytes(*count));
    (kinds.len() == 2 * count).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::name_in;

    #[test]
    fn names_are_cut_out_of_well_formed_options_only() {
        assert_eq!(name_in(b"\0\0\0\x02ab\0\x01\0\x03"), Some(&b"ab"[..]));
        assert_eq!(name_in(b"\0\0\0\0\0\0"), Some(&b""[..]));
        for wrong in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\x03ab\0",
            b"\xff\xff\xff\xffab\0\0",
            b"\0\0\0\x02ab\0\x02\0\x03",
            b"\0\0\0\x02ab\0\0\0",
        ] {
            assert_eq!(name_in(wrong), None, "{wrong:?}");
        }
    }
}
