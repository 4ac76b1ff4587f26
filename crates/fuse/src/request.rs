//! Requests: from the bytes of one read of `/dev/fuse` to a checked operation.
//!
//! The kernel is trusted with nothing here: every length is checked against what was read, and a
//! request that does not parse is answered with EINVAL. Names are cut at 255 bytes by an error
//! before anything else sees them; a name is never empty and never holds `/`.

use rustix::fs::OFlags;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, InHeader, op};
use crate::errno::Errno;

/// The longest name of a directory entry.
const NAME_MAX: usize = 255;
/// The longest target of a symbolic link, as Linux's `PATH_MAX` less the NUL.
const TARGET_MAX: usize = 4095;

/// What is asked for. References point into the request.
#[derive(Debug)]
pub(crate) enum Op<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget {
        nodes: &'a [abi::ForgetOne],
    },
    /// With a handle, it comes before a write.
    Getattr {
        handle: Option<u64>,
    },
    Statx,
    /// The caller wants to know whether it may read (4), write (2) or execute (1).
    Access {
        mask: u32,
    },
    Setattr(&'a abi::SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_dir: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Tmpfile {
        mode: u32,
        umask: u32,
    },
    Read {
        offset: u64,
        size: u32,
        /// The file is open with `O_DIRECT`.
        direct: bool,
    },
    Write {
        offset: u64,
        data: &'a [u8],
        flags: u32,
        /// The file is open with `O_DIRECT`.
        direct: bool,
    },
    Fsync {
        datasync: bool,
    },
    Statfs,
    Syncfs,
    Release {
        handle: u64,
    },
    Flush,
    Opendir,
    Releasedir,
    Readdir {
        offset: u64,
        size: u32,
        plus: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        kill_sgid: bool,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Ioctl {
        command: u32,
        restricted: bool,
        data: &'a [u8],
        out_size: u32,
    },
    Fallocate {
        mode: u32,
        offset: u64,
        len: u64,
    },
    CopyFileRange(&'a abi::CopyFileRangeIn),
    Lseek {
        offset: u64,
        whence: u32,
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// Anything else: answered with ENOSYS.
    Unknown,
}

/// A request's header and the bytes behind it.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) header: &'a InHeader,
    body: &'a [u8],
}

/// Whether the flags of an open file say that its bytes are not to be cached.
fn is_direct(open_flags: u32) -> bool {
    open_flags & OFlags::DIRECT.bits() != 0
}

impl<'a> Request<'a> {
    /// Splits the bytes of one read. `None` if they are shorter than a header or contradict it.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = InHeader::ref_from_prefix(bytes).ok()?;
        (header.len as usize == bytes.len()).then_some(Self { header, body })
    }

    /// The operation. `setxattr_ext` says which form of SETXATTR was agreed on.
    pub(crate) fn op(&self, setxattr_ext: bool) -> Result<Op<'a>, Errno> {
        let mut body = Body(self.body);
        let opcode = self.header.opcode;
        let op = match opcode {
            op::LOOKUP
            | op::SYMLINK
            | op::MKNOD
            | op::MKDIR
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::RENAME2
            | op::LINK
            | op::CREATE
            | op::TMPFILE => body.name_op(opcode)?,
            op::READ
            | op::WRITE
            | op::FSYNC
            | op::FSYNCDIR
            | op::FALLOCATE
            | op::COPY_FILE_RANGE
            | op::LSEEK
            | op::IOCTL => body.data_op(opcode)?,
            op::GETATTR
            | op::STATX
            | op::ACCESS
            | op::SETATTR
            | op::SETXATTR
            | op::GETXATTR
            | op::LISTXATTR
            | op::REMOVEXATTR => body.attribute_op(opcode, setxattr_ext)?,
            op::OPEN
            | op::RELEASE
            | op::FLUSH
            | op::OPENDIR
            | op::RELEASEDIR
            | op::READDIR
            | op::READDIRPLUS => body.handle_op(opcode)?,
            op::FORGET => Op::Forget {
                count: body.take::<abi::ForgetIn>()?.nlookup,
            },
            op::BATCH_FORGET => {
                let head = body.take::<abi::BatchForgetIn>()?;
                Op::BatchForget {
                    nodes: body.slice(head.count)?,
                }
            }
            op::READLINK => Op::Readlink,
            op::STATFS => Op::Statfs,
            op::SYNCFS => Op::Syncfs,
            op::INTERRUPT => {
                let head: &abi::InterruptIn = body.take()?;
                Op::Interrupt {
                    unique: head.unique,
                }
            }
            op::DESTROY => Op::Destroy,
            _ => Op::Unknown,
        };
        Ok(op)
    }

    /// The arguments of INIT: the fixed part and the upper half of the flags, where the kernel
    /// sends one.
    pub(crate) fn init(&self) -> Option<(&'a abi::InitIn, u32)> {
        if self.header.opcode != op::INIT {
            return None;
        }
        let (head, rest) = abi::InitIn::ref_from_prefix(self.body).ok()?;
        let upper = u32::read_from_prefix(rest).map_or(0, |(flags2, _)| flags2);
        Some((head, upper))
    }
}

/// What is left of a request's body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<&'a T, Errno> {
        let (head, rest) = T::ref_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(head)
    }

    fn slice<T: FromBytes + KnownLayout + Immutable>(&mut self, n: u32) -> Result<&'a [T], Errno> {
        let n = usize::try_from(n).map_err(|_| Errno::INVAL)?;
        let (head, rest) =
            <[T]>::ref_from_prefix_with_elems(self.0, n).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(head)
    }

    fn bytes(&mut self, n: u32) -> Result<&'a [u8], Errno> {
        self.slice(n)
    }

    /// An operation that names a directory entry.
    fn name_op(&mut self, opcode: u32) -> Result<Op<'a>, Errno> {
        let op = match opcode {
            op::LOOKUP => Op::Lookup { name: self.name()? },
            op::SYMLINK => Op::Symlink {
                name: self.name()?,
                target: self.target()?,
            },
            op::MKNOD | op::MKDIR | op::CREATE | op::TMPFILE => self.create_op(opcode)?,
            op::UNLINK => Op::Unlink { name: self.name()? },
            op::RMDIR => Op::Rmdir { name: self.name()? },
            op::RENAME => {
                let new_dir = self.take::<abi::RenameIn>()?.newdir;
                Op::Rename {
                    name: self.name()?,
                    new_dir,
                    new_name: self.name()?,
                    flags: 0,
                }
            }
            op::RENAME2 => {
                let head: &abi::Rename2In = self.take()?;
                let (new_dir, flags) = (head.newdir, head.flags);
                Op::Rename {
                    name: self.name()?,
                    new_dir,
                    new_name: self.name()?,
                    flags,
                }
            }
            op::LINK => {
                let node = self.take::<abi::LinkIn>()?.oldnodeid;
                Op::Link {
                    node,
                    name: self.name()?,
                }
            }
            _ => Op::Unknown,
        };
        Ok(op)
    }

    /// An operation that makes an inode with a mode.
    fn create_op(&mut self, opcode: u32) -> Result<Op<'a>, Errno> {
        let op = match opcode {
            op::MKNOD => {
                let head: &abi::MknodIn = self.take()?;
                Op::Mknod {
                    name: self.name()?,
                    mode: head.mode,
                    rdev: head.rdev,
                    umask: head.umask,
                }
            }
            op::MKDIR => {
                let head: &abi::MkdirIn = self.take()?;
                Op::Mkdir {
                    name: self.name()?,
                    mode: head.mode,
                    umask: head.umask,
                }
            }
            op::CREATE => {
                let head: &abi::CreateIn = self.take()?;
                Op::Create {
                    name: self.name()?,
                    mode: head.mode,
                    umask: head.umask,
                }
            }
            op::TMPFILE => {
                let head: &abi::CreateIn = self.take()?;
                Op::Tmpfile {
                    mode: head.mode,
                    umask: head.umask,
                }
            }
            _ => Op::Unknown,
        };
        Ok(op)
    }

    /// An operation that opens or closes a file or directory, or lists a directory.
    fn handle_op(&mut self, opcode: u32) -> Result<Op<'a>, Errno> {
        let op = match opcode {
            op::OPEN => Op::Open {
                flags: self.take::<abi::OpenIn>()?.flags,
            },
            op::RELEASE => Op::Release {
                handle: self.take::<abi::ReleaseIn>()?.fh,
            },
            op::FLUSH => Op::Flush,
            op::OPENDIR => Op::Opendir,
            op::RELEASEDIR => Op::Releasedir,
            op::READDIR | op::READDIRPLUS => {
                let head: &abi::ReadIn = self.take()?;
                Op::Readdir {
                    offset: head.offset,
                    size: head.size,
                    plus: opcode == op::READDIRPLUS,
                }
            }
            _ => Op::Unknown,
        };
        Ok(op)
    }

    /// An operation on a file's data, or on the file as a whole.
    fn data_op(&mut self, opcode: u32) -> Result<Op<'a>, Errno> {
        let op = match opcode {
            op::READ => {
                let head: &abi::ReadIn = self.take()?;
                Op::Read {
                    offset: head.offset,
                    size: head.size,
                    direct: is_direct(head.flags),
                }
            }
            op::WRITE => {
                let head: &abi::WriteIn = self.take()?;
                let data = self.bytes(head.size)?;
                Op::Write {
                    offset: head.offset,
                    data,
                    flags: head.write_flags,
                    direct: is_direct(head.flags),
                }
            }
            op::FSYNC | op::FSYNCDIR => {
                let flags = self.take::<abi::FsyncIn>()?.fsync_flags;
                Op::Fsync {
                    datasync: flags & abi::FSYNC_FDATASYNC != 0,
                }
            }
            op::FALLOCATE => {
                let head: &abi::FallocateIn = self.take()?;
                Op::Fallocate {
                    mode: head.mode,
                    offset: head.offset,
                    len: head.length,
                }
            }
            op::COPY_FILE_RANGE => {
                let head: &abi::CopyFileRangeIn = self.take()?;
                Op::CopyFileRange(head)
            }
            op::LSEEK => {
                let head: &abi::LseekIn = self.take()?;
                Op::Lseek {
                    offset: head.offset,
                    whence: head.whence,
                }
            }
            op::IOCTL => {
                let head: &abi::IoctlIn = self.take()?;
                Op::Ioctl {
                    command: head.cmd,
                    restricted: head.flags & abi::IOCTL_UNRESTRICTED == 0,
                    data: self.bytes(head.in_size)?,
                    out_size: head.out_size,
                }
            }
            _ => Op::Unknown,
        };
        Ok(op)
    }

    /// An operation on attributes.
    fn attribute_op(&mut self, opcode: u32, setxattr_ext: bool) -> Result<Op<'a>, Errno> {
        let op = match opcode {
            op::GETATTR => {
                let head: &abi::GetattrIn = self.take()?;
                let with = head.getattr_flags & abi::GETATTR_FH != 0;
                Op::Getattr {
                    handle: with.then_some(head.fh),
                }
            }
            op::STATX => Op::Statx,
            op::ACCESS => Op::Access {
                mask: self.take::<abi::AccessIn>()?.mask,
            },
            op::SETATTR => Op::Setattr(self.take()?),
            op::SETXATTR => {
                let (size, flags, extra) = if setxattr_ext {
                    let head: &abi::SetxattrIn = self.take()?;
                    (head.size, head.flags, head.setxattr_flags)
                } else {
                    let head: &abi::SetxattrShortIn = self.take()?;
                    (head.size, head.flags, 0)
                };
                let name = self.string()?;
                let kill_sgid = extra & abi::SETXATTR_ACL_KILL_SGID != 0;
                Op::Setxattr {
                    name,
                    value: self.bytes(size)?,
                    flags,
                    kill_sgid,
                }
            }
            op::GETXATTR => {
                let size = self.take::<abi::GetxattrIn>()?.size;
                Op::Getxattr {
                    name: self.string()?,
                    size,
                }
            }
            op::LISTXATTR => Op::Listxattr {
                size: self.take::<abi::GetxattrIn>()?.size,
            },
            op::REMOVEXATTR => Op::Removexattr {
                name: self.string()?,
            },
            _ => Op::Unknown,
        };
        Ok(op)
    }

    /// Bytes up to a NUL, which must be there.
    fn string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(Errno::INVAL)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or(&[]);
        Ok(string)
    }

    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.string()?;
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if name.is_empty() || name.contains(&b'/') {
            return Err(Errno::INVAL);
        }
        Ok(name)
    }

    fn target(&mut self) -> Result<&'a [u8], Errno> {
        let target = self.string()?;
        if target.len() > TARGET_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(size_of::<InHeader>() + body.len()).unwrap();
        let mut bytes = InHeader {
            len,
            opcode,
            ..InHeader::default()
        }
        .as_bytes()
        .to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<String, Errno> {
        Request::new(bytes)
            .unwrap()
            .op(true)
            .map(|op| format!("{op:?}"))
    }

    #[test]
    fn names_end_at_255_bytes() {
        let name = |len: usize| request(op::LOOKUP, &[vec![b'n'; len], vec![0]].concat());
        assert!(parse(&name(255)).is_ok());
        assert_eq!(parse(&name(256)), Err(Errno::NAMETOOLONG));
        assert_eq!(parse(&name(1024)), Err(Errno::NAMETOOLONG));
        assert_eq!(parse(&name(0)), Err(Errno::INVAL));
        assert_eq!(parse(&request(op::UNLINK, b"a/b\0")), Err(Errno::INVAL));
        assert_eq!(parse(&request(op::UNLINK, b"no nul")), Err(Errno::INVAL));
    }

    #[test]
    fn both_names_of_a_rename_are_checked() {
        let mut body = abi::Rename2In {
            newdir: 9,
            flags: 2,
            padding: 0,
        }
        .as_bytes()
        .to_vec();
        body.extend_from_slice(b"old\0new\0");
        let text = parse(&request(op::RENAME2, &body)).unwrap();
        assert!(
            text.contains("new_dir: 9") && text.contains("flags: 2"),
            "{text}"
        );
        body.truncate(body.len() - 1);
        assert_eq!(parse(&request(op::RENAME2, &body)), Err(Errno::INVAL));
    }

    #[test]
    fn a_write_cannot_claim_more_than_was_sent() {
        let mut head = abi::WriteIn {
            size: 4,
            ..abi::WriteIn::default()
        };
        let body = [head.as_bytes(), b"abcd"].concat();
        assert!(parse(&request(op::WRITE, &body)).is_ok());
        head.size = 5;
        let body = [head.as_bytes(), b"abcd"].concat();
        assert_eq!(parse(&request(op::WRITE, &body)), Err(Errno::INVAL));
    }

    #[test]
    fn every_opcode_survives_every_short_body() {
        let body = [0xffu8; 96];
        for opcode in 0..=60 {
            for len in 0..body.len() {
                let bytes = request(opcode, &body[..len]);
                let _ = parse(&bytes);
            }
        }
        assert!(Request::new(&[0; 39]).is_none());
        assert!(
            Request::new(&[0; 40]).is_none(),
            "length disagrees with the header"
        );
    }
}
