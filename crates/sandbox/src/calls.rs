//! The system calls of a confined process: every one that it makes, and why.
//!
//! This list is the policy. A call that the daemon of a mount begins to make gets an entry here
//! with its reason, in the group that fits.
//!
//! | the call is | the kernel |
//! |---|---|
//! | in [`ALLOWED`], or in [`RINGS`] or [`GUEST`] where the process needs those | makes it |
//! | in [`WITH_ARGUMENTS`], or in that of [`RINGS`] or [`GUEST`], with such arguments | makes it |
//! | in [`REFUSED`] | answers `EACCES` |
//! | in [`UNKNOWN`], or newer than [`NEWEST`] | answers `ENOSYS`, as a kernel without it does |
//! | anything else | ends the process (`SIGSYS`), and logs the call |
//!
//! A filter sees the arguments, not the memory that they point to. So calls that reach out by an
//! address or a path in memory, such as `connect`, `sendmsg` or `statx`, are not made at all: the
//! keeper of a mount makes them, and hands the descriptor over.
//!
//! Calls that are refused with an error are those that the C library and the standard library try
//! for information and do without. Only foreign code makes any other call. A process that runs such
//! code must not write to an image any more.

use libc::*;

/// A system call's number.
pub(crate) type Call = c_long;

/// Made with any arguments.
pub(crate) const ALLOWED: &[(Call, &str)] = &[
    // Descriptors that are open.
    (SYS_read, "requests of the kernel, the bell of an eventfd"),
    (SYS_write, "replies to the kernel, the bell, standard error"),
    (SYS_readv, "a server's replies"),
    (
        SYS_writev,
        "requests to a server, replies that end with zeros",
    ),
    (SYS_pread64, "the image"),
    (SYS_pwrite64, "the image"),
    (SYS_preadv, "the image, into several folios"),
    (SYS_pwritev, "the image, from several folios"),
    (SYS_preadv2, "the image, where the C library prefers it"),
    (SYS_pwritev2, "the image, where the C library prefers it"),
    (SYS_fdatasync, "flush of the image"),
    (SYS_fsync, "flush of the image"),
    (SYS_fallocate, "discarding and zeroing blocks of the image"),
    (SYS_ftruncate, "a longer image, when its volume grows"),
    (
        SYS_fadvise64,
        "dropping the host's pages before a block is read afresh",
    ),
    (SYS_lseek, "the length of the image"),
    (SYS_fstat, "the image's metadata"),
    (SYS_flock, "giving the lock on the image back"),
    (SYS_close, "what is open"),
    (SYS_dup, "descriptors of the threads' own"),
    (SYS_dup3, "standard streams of a daemon become /dev/null"),
    (SYS_eventfd2, "bells that wake threads which wait"),
    (SYS_ppoll, "waiting for requests"),
    // Sockets that are open.
    (SYS_accept4, "clients that wait for the unmount"),
    (SYS_recvfrom, "clients, the keeper, the thread of signals"),
    (SYS_recvmsg, "the keeper's answer with /dev/fuse"),
    (SYS_getsockopt, "a client's user"),
    (SYS_getsockname, "the standard library's sockets"),
    (SYS_getpeername, "the standard library's sockets"),
    (SYS_shutdown, "hanging up"),
    // Memory.
    (SYS_munmap, "memory"),
    (SYS_mremap, "memory"),
    (
        SYS_madvise,
        "memory that is given back, guard pages of stacks",
    ),
    (SYS_brk, "memory"),
    // Threads, waiting, time.
    (SYS_futex, "locks"),
    (SYS_set_robust_list, "a thread's start"),
    (SYS_rseq, "a thread's start"),
    (
        SYS_sigaltstack,
        "a thread's start: the stack of its overflow handler",
    ),
    (SYS_gettid, "a thread's start, its number in messages"),
    (
        SYS_sched_getaffinity,
        "the number of processors; a thread's start",
    ),
    (SYS_sched_yield, "the watcher between two looks"),
    (SYS_nanosleep, "pauses"),
    (SYS_clock_nanosleep, "pauses"),
    (
        SYS_clock_gettime,
        "time, where it is no function of the process",
    ),
    (SYS_clock_getres, "time"),
    (SYS_gettimeofday, "time"),
    (SYS_getcpu, "counters of each processor"),
    (
        SYS_restart_syscall,
        "waiting goes on after SIGSTOP and SIGCONT",
    ),
    (SYS_rt_sigaction, "signals at the end of the process"),
    (
        SYS_rt_sigprocmask,
        "signals while a thread starts or aborts",
    ),
    (SYS_rt_sigreturn, "the end of a signal's handler"),
    (SYS_exit, "a thread's end"),
    (SYS_exit_group, "the process's end"),
    (SYS_wait4, "the keeper's end"),
    // Facts.
    (SYS_getpid, "lines of the log, aborting"),
    (SYS_getuid, "which users may see the counters"),
    (SYS_geteuid, "which users may see the counters"),
    (SYS_getgid, "facts of the process"),
    (SYS_getegid, "facts of the process"),
    (SYS_getrandom, "numbers that cannot be guessed"),
    (SYS_uname, "the host's name, for multiple mount protection"),
    (SYS_sysinfo, "the C library's view of memory"),
    (SYS_getrusage, "facts of the process"),
    (SYS_setsid, "a daemon's own session"),
];

/// Calls that only some processors have beside those of [`ALLOWED`].
#[cfg(target_arch = "x86_64")]
pub(crate) const OLDER: &[(Call, &str)] = &[
    (SYS_poll, "waiting for requests"),
    (SYS_dup2, "standard streams of a daemon become /dev/null"),
    (SYS_time, "time"),
    (SYS_arch_prctl, "a thread's start"),
];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLDER: &[(Call, &str)] = &[];

/// A condition on an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// This value.
    Is(u64),
    /// All of these bits are set.
    Has(u64),
    /// None of these bits is set.
    Lacks(u64),
    /// A pointer to nothing.
    Null,
}
use Argument::{Has, Is, Lacks, Null};

/// The number of an argument, and what it has to be.
pub(crate) type Condition = (u8, Argument);

/// The bits of a constant of the C library's.
const fn bits(constant: c_int) -> u64 {
    constant.unsigned_abs() as u64
}

/// Calls, alternatives of conditions that hold together, and why.
type WithArguments = (Call, &'static [&'static [Condition]], &'static str);

/// Made if the conditions of one alternative hold.
pub(crate) const WITH_ARGUMENTS: &[WithArguments] = &[
    (
        SYS_clone,
        &[&[(0, Has(bits(CLONE_THREAD | CLONE_VM)))]],
        "threads, no processes",
    ),
    (
        SYS_mmap,
        &[&[(2, Lacks(bits(PROT_EXEC)))]],
        "memory, no code",
    ),
    (
        SYS_mprotect,
        &[&[(2, Lacks(bits(PROT_EXEC)))]],
        "memory, no code",
    ),
    (
        SYS_ioctl,
        &[&[(1, Is(FIONBIO))], &[(1, Is(TCGETS))]],
        "sockets that do not wait; whether standard error is a terminal",
    ),
    (
        SYS_prctl,
        &[
            &[(0, Is(bits(PR_SET_NAME)))],
            &[(0, Is(bits(PR_GET_NAME)))],
            &[(0, Is(bits(PR_SET_VMA)))],
        ],
        "names of threads, names of memory",
    ),
    (
        SYS_fcntl,
        &[
            &[(1, Is(bits(F_GETFD)))],
            &[(1, Is(bits(F_GETFL)))],
            &[(1, Is(bits(F_SETFL))), (2, Lacks(bits(O_ASYNC)))],
            &[(1, Is(bits(F_OFD_GETLK)))],
            &[(1, Is(bits(F_OFD_SETLK)))],
        ],
        "locks on the image, `/dev/fuse` that does not wait; no signals to other processes",
    ),
    (
        SYS_sendto,
        &[&[(4, Null)]],
        "clients, the keeper, the system's log: what a socket is connected to",
    ),
    (
        SYS_setsockopt,
        &[
            &[(1, Is(bits(SOL_SOCKET))), (2, Is(bits(SO_RCVTIMEO)))],
            &[(1, Is(bits(SOL_SOCKET))), (2, Is(bits(SO_SNDTIMEO)))],
        ],
        "time limits of sockets",
    ),
    (
        SYS_prlimit64,
        &[&[(0, Is(0)), (2, Null)]],
        "the size of the first thread's stack; no limit is set",
    ),
];

/// For a process with rings, which it has made before: it makes no more. What its rings do this
/// list does not see; the rings were restricted when they were made.
pub(crate) const RINGS: &[(Call, &str)] =
    &[(SYS_io_uring_enter, "fetching and answering requests")];

/// For the same, with some arguments.
pub(crate) const RINGS_WITH_ARGUMENTS: &[WithArguments] = &[
    (
        SYS_io_uring_register,
        &[&[(1, Is(REGISTER_FILES))], &[(1, Is(ENABLE_RINGS))]],
        "a thread takes its ring into use",
    ),
    (
        SYS_sched_setaffinity,
        &[&[(0, Is(0))]],
        "a worker stays where its callers are",
    ),
];
/// Operations of `io_uring_register`.
const REGISTER_FILES: u64 = 2;
const ENABLE_RINGS: u64 = 12;

/// For a process that serves devices of a virtual machine. It makes no socket, so a message goes
/// only to the monitor, which has connected before.
pub(crate) const GUEST: &[(Call, &str)] = &[
    (
        SYS_sendmsg,
        "replies to the monitor, by the socket that it is connected to",
    ),
    (SYS_epoll_create1, "each queue's thread waits for its guest"),
    (SYS_epoll_ctl, "queues that a monitor starts and stops"),
    (SYS_epoll_pwait, "each queue's thread waits for its guest"),
];

/// The same under older names.
#[cfg(target_arch = "x86_64")]
pub(crate) const GUEST_OLDER: &[(Call, &str)] =
    &[(SYS_epoll_wait, "each queue's thread waits for its guest")];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const GUEST_OLDER: &[(Call, &str)] = &[];

/// For the same, with some arguments.
pub(crate) const GUEST_WITH_ARGUMENTS: &[WithArguments] = &[(
    SYS_fcntl,
    &[&[(1, Is(bits(F_DUPFD_CLOEXEC)))]],
    "a second descriptor of the monitor's connection, to end it by",
)];

/// Refused with `EACCES`: they name paths, which a confined process does without.
pub(crate) const REFUSED: &[(Call, &str)] = &[
    (
        SYS_openat,
        "limits of the control group, maps for a backtrace",
    ),
    (SYS_faccessat, "the C library's looks at files"),
    (SYS_readlinkat, "the program's own path, for a backtrace"),
    (SYS_getcwd, "paths in a backtrace"),
    (SYS_chdir, "paths"),
    (SYS_statfs, "paths"),
    // A filter does not see that the path is empty. `fstat` has none.
    (SYS_newfstatat, "files that the standard library looks at"),
    (SYS_statx, "the same"),
];

/// The same under older names.
#[cfg(target_arch = "x86_64")]
pub(crate) const REFUSED_OLDER: &[(Call, &str)] = &[
    (SYS_open, "as openat"),
    (SYS_stat, "as statx"),
    (SYS_lstat, "as statx"),
    (SYS_access, "as faccessat"),
    (SYS_readlink, "as readlinkat"),
];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const REFUSED_OLDER: &[(Call, &str)] = &[];

/// Answered with `ENOSYS`: the C library then uses an older call.
pub(crate) const UNKNOWN: &[(Call, &str)] = &[
    (
        SYS_clone3,
        "its flags lie in memory, where no filter sees them; clone does",
    ),
    (SYS_openat2, "as openat"),
    (SYS_faccessat2, "as faccessat"),
    (SYS_membarrier, "not needed"),
];

/// The last call of Linux 6.16. What a C library tries that is newer has a way without it.
pub(crate) const NEWEST: Call = 467;
/// So many numbers behind it are answered as unknown.
pub(crate) const NEWER: Call = 64;
