//! The numbers of the NBD protocol, and the requests as they are sent.

/// The first eight bytes of a server: `NBDMAGIC`.
pub(crate) const GREETING: u64 = 0x4E42_444D_4147_4943;
/// The next eight of one that negotiates options, and the first of each option: `IHAVEOPT`.
pub(crate) const OPTION: u64 = 0x4948_4156_454F_5054;
/// The first eight bytes of each reply to an option.
pub(crate) const OPTION_REPLY: u64 = 0x0003_E889_0455_65A9;
/// The first four bytes of a request, of a simple reply and of a chunk of a structured one.
pub(crate) const REQUEST: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY: u32 = 0x668E_33EF;

/// Flags of the handshake, the same on both sides.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// Options.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
}

/// Replies to options. Those of errors have the highest bit set.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const TOO_LARGE: u32 = ERROR + 9;

    /// An error in words.
    pub(crate) fn words(error: u32) -> &'static str {
        match error & !ERROR {
            1 => "the server does not know the request",
            2 => "forbidden by the server's policy",
            3 => "the server finds the request invalid",
            4 => "not supported on the server's platform",
            5 => "the server requires TLS (nbds://)",
            6 => "there is no such export",
            7 => "the server is shutting down",
            8 => "the server requires block sizes that were not asked for",
            9 => "the request is too large for the server",
            _ => "the server refuses for an unknown reason",
        }
    }
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export, as a server sends them.
pub(crate) mod flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
}

/// Commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

impl Command {
    /// The command with this number.
    pub(crate) fn of(number: u16) -> Option<Command> {
        let all = [
            Command::Read,
            Command::Write,
            Command::Disconnect,
            Command::Flush,
            Command::Trim,
            Command::WriteZeroes,
        ];
        all.into_iter().find(|&one| one as u16 == number)
    }

    /// Returns whether the command changes the export.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// The flag of a request whose bytes are to be durable when the reply is sent.
pub(crate) const FORCE_UNIT_ACCESS: u16 = 1;
/// The flag of a request to write zeros that is to leave no hole.
pub(crate) const NO_HOLE: u16 = 1 << 1;

/// Chunks of structured replies. Those of errors have the highest bit set.
pub(crate) mod chunk {
    pub(crate) const DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const ERROR: u16 = 1 << 15;
    /// An error of the whole request.
    pub(crate) const FAILED: u16 = ERROR + 1;
}

/// Numbers of errors, the same as Linux's.
pub(crate) mod number {
    pub(crate) const NOT_PERMITTED: u32 = 1;
    pub(crate) const IO: u32 = 5;
    pub(crate) const NO_MEMORY: u32 = 12;
    pub(crate) const INVALID: u32 = 22;
    pub(crate) const NO_SPACE: u32 = 28;
    pub(crate) const OVERFLOW: u32 = 75;
}

/// The errno of a server that is shutting down.
pub(crate) const SHUTDOWN: u32 = 108;

/// A request as a client has sent it, before anything of it is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestHeader {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl RequestHeader {
    /// The length of a header in bytes.
    pub(crate) const LEN: usize = 28;

    /// The header in `bytes`; nothing if they do not begin a request.
    pub(crate) fn parse(bytes: &[u8; RequestHeader::LEN]) -> Option<RequestHeader> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (command, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (len, _) = rest.split_first_chunk()?;
        (u32::from_be_bytes(*magic) == REQUEST).then(|| RequestHeader {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            len: u32::from_be_bytes(*len),
        })
    }
}

/// A request without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    /// A request without flags.
    pub(crate) fn new(command: Command, offset: u64, len: u32) -> Request {
        Request {
            command,
            flags: 0,
            offset,
            len,
        }
    }

    /// The request as it is sent.
    pub(crate) fn header(&self, cookie: u64) -> [u8; 28] {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.command as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The error of the host for a number that the protocol defines.
pub(crate) fn server_error(number: u32) -> std::io::Error {
    // The protocol's numbers are Linux's. Others say nothing.
    let errno = match number {
        1 | 5 | 12 | 22 | 28 | 75 | 95 | SHUTDOWN => number.cast_signed(),
        _ => 5,
    };
    std::io::Error::from_raw_os_error(errno)
}

/// The number that the protocol has for an error of the host.
pub(crate) fn number_of(error: &std::io::Error) -> u32 {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => number::NOT_PERMITTED,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => number::NO_SPACE,
        ErrorKind::OutOfMemory => number::NO_MEMORY,
        _ => number::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_reads_the_header_that_a_client_sends() {
        let mut request = Request::new(Command::WriteZeroes, 1 << 40, 77);
        request.flags = NO_HOLE;
        let mut bytes = request.header(u64::MAX - 5);
        let expected = RequestHeader {
            flags: NO_HOLE,
            command: 6,
            cookie: u64::MAX - 5,
            offset: 1 << 40,
            len: 77,
        };
        assert_eq!(RequestHeader::parse(&bytes), Some(expected));
        assert_eq!(Command::of(expected.command), Some(Command::WriteZeroes));
        assert_eq!(Command::of(5), None);
        bytes[3] ^= 1;
        assert_eq!(RequestHeader::parse(&bytes), None);
    }
}
