//! Error numbers, as replies carry them.

/// A positive error number of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) const PERM: Errno = Errno::of(rustix::io::Errno::PERM);
    pub(crate) const INTR: Errno = Errno::of(rustix::io::Errno::INTR);
    pub(crate) const ACCESS: Errno = Errno::of(rustix::io::Errno::ACCESS);
    pub(crate) const IO: Errno = Errno::of(rustix::io::Errno::IO);
    pub(crate) const INVAL: Errno = Errno::of(rustix::io::Errno::INVAL);
    pub(crate) const RANGE: Errno = Errno::of(rustix::io::Errno::RANGE);
    pub(crate) const NAMETOOLONG: Errno = Errno::of(rustix::io::Errno::NAMETOOLONG);
    pub(crate) const NOSPC: Errno = Errno::of(rustix::io::Errno::NOSPC);
    pub(crate) const NOSYS: Errno = Errno::of(rustix::io::Errno::NOSYS);
    pub(crate) const NOTTY: Errno = Errno::of(rustix::io::Errno::NOTTY);
    pub(crate) const OPNOTSUPP: Errno = Errno::of(rustix::io::Errno::OPNOTSUPP);
    pub(crate) const MSGSIZE: Errno = Errno::of(rustix::io::Errno::MSGSIZE);
    pub(crate) const OVERFLOW: Errno = Errno::of(rustix::io::Errno::OVERFLOW);
    pub(crate) const STALE: Errno = Errno::of(rustix::io::Errno::STALE);

    const fn of(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }

    /// As a reply's header wants it.
    pub(crate) const fn negative(self) -> i32 {
        -self.0
    }
}

impl From<extant_engine::Error> for Errno {
    fn from(error: extant_engine::Error) -> Errno {
        Errno(error.errno())
    }
}
