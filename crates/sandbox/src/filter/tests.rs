//! The programs as the kernel would run them: the answer to each call with arguments that it needs
//! and with others.

mod machine;

use std::collections::BTreeSet;

use libc::*;

use super::*;
use machine::{Answer, answer};

/// A call with arguments, the first ones; the others are zero.
type Made = (Call, &'static [u64]);

/// A value that shows as an int only in its lower half.
const ABOVE: u64 = 1 << 32;
/// An address: the lower half of it alone is none.
const ADDRESS: u64 = ABOVE;

/// The value of a constant of the C library's.
const fn value(constant: c_int) -> u64 {
    constant.unsigned_abs() as u64
}

const DATA: u64 = value(PROT_READ | PROT_WRITE);
const CODE: u64 = value(PROT_READ | PROT_EXEC);
const THREAD: u64 = value(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD);
const SOCKET: u64 = value(SOL_SOCKET);
/// `RLIMIT_STACK`, whose type is not the same in every C library.
const STACK: u64 = 3;

/// Calls that depend on their arguments, with such that are made.
const MADE: &[Made] = &[
    (SYS_clone, &[THREAD]),
    (SYS_mmap, &[0, 4096, DATA]),
    (SYS_mmap, &[0, 4096, value(PROT_NONE)]),
    (SYS_mprotect, &[0, 4096, DATA]),
    (SYS_ioctl, &[3, FIONBIO]),
    (SYS_ioctl, &[2, TCGETS]),
    // The kernel takes an int.
    (SYS_ioctl, &[3, ABOVE | FIONBIO]),
    (SYS_prctl, &[value(PR_SET_NAME), ADDRESS]),
    (SYS_prctl, &[value(PR_GET_NAME), ADDRESS]),
    (SYS_prctl, &[value(PR_SET_VMA)]),
    (SYS_fcntl, &[3, value(F_GETFD)]),
    (SYS_fcntl, &[3, value(F_GETFL)]),
    (SYS_fcntl, &[3, value(F_SETFL), value(O_NONBLOCK)]),
    (SYS_fcntl, &[3, value(F_OFD_GETLK), ADDRESS]),
    (SYS_fcntl, &[3, value(F_OFD_SETLK), ADDRESS]),
    (SYS_sendto, &[3, ADDRESS, 1]),
    (SYS_setsockopt, &[3, SOCKET, value(SO_RCVTIMEO)]),
    (SYS_setsockopt, &[3, SOCKET, value(SO_SNDTIMEO)]),
    (SYS_prlimit64, &[0, STACK, 0, ADDRESS]),
];

/// The same calls with arguments that end the process.
const DEADLY: &[Made] = &[
    // A process of its own.
    (SYS_clone, &[value(SIGCHLD)]),
    (SYS_clone, &[value(CLONE_VM | CLONE_VFORK | SIGCHLD)]),
    (SYS_clone, &[THREAD & !value(CLONE_VM)]),
    (SYS_mmap, &[0, 4096, CODE]),
    (SYS_mmap, &[0, 4096, ABOVE | CODE]),
    (SYS_mprotect, &[0, 4096, CODE]),
    (SYS_mprotect, &[0, 4096, value(PROT_EXEC)]),
    (SYS_ioctl, &[2, TIOCSTI]),
    (SYS_prctl, &[value(PR_SET_DUMPABLE), 1]),
    (SYS_prctl, &[value(PR_SET_PTRACER), u64::MAX]),
    (SYS_fcntl, &[3, value(F_DUPFD)]),
    (SYS_fcntl, &[3, value(F_SETOWN), 1]),
    (SYS_fcntl, &[3, value(F_SETFL), value(O_ASYNC)]),
    (SYS_fcntl, &[3, value(F_SETFL), value(O_NONBLOCK | O_ASYNC)]),
    (SYS_sendto, &[3, ADDRESS, 1, 0, 1]),
    (SYS_sendto, &[3, ADDRESS, 1, 0, ADDRESS]),
    (SYS_setsockopt, &[3, SOCKET, value(SO_ATTACH_FILTER)]),
    (SYS_setsockopt, &[3, value(IPPROTO_TCP), value(SO_RCVTIMEO)]),
    (SYS_prlimit64, &[1, STACK]),
    (SYS_prlimit64, &[0, STACK, 1]),
    (SYS_prlimit64, &[0, STACK, ADDRESS]),
    (SYS_tgkill, &[1, 1, value(SIGABRT)]),
];

/// Calls that a process with rings makes as well.
const MADE_WITH_RINGS: &[Made] = &[
    (SYS_io_uring_enter, &[3, 1]),
    (SYS_io_uring_register, &[3, 2]),
    (SYS_io_uring_register, &[3, 12]),
    (SYS_sched_setaffinity, &[0, 8]),
];

/// Calls that end it all the same.
const DEADLY_WITH_RINGS: &[Made] = &[
    (SYS_io_uring_setup, &[8]),
    // Buffers, and other tasks' personalities.
    (SYS_io_uring_register, &[3, 0]),
    (SYS_io_uring_register, &[3, 9]),
    (SYS_sched_setaffinity, &[1, 8]),
];

/// The answers to `calls` in a process with or without rings have to be `expected`.
fn check(rings: bool, calls: &[Made], expected: Answer) {
    let programs = native(rings);
    for &(call, args) in calls {
        let found = answer(&programs, call, args);
        assert_eq!(found, expected, "rings {rings}: call {call} {args:x?}");
    }
}

/// The programs for this processor.
fn native(rings: bool) -> Vec<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let profile = Profile {
        rings,
        ..Profile::default()
    };
    programs(&profile, arch).unwrap()
}

#[test]
fn a_call_is_made_with_the_arguments_that_are_needed_and_no_others() {
    for rings in [false, true] {
        check(rings, MADE, Answer::Made);
        check(rings, DEADLY, Answer::Killed);
        check(rings, DEADLY_WITH_RINGS, Answer::Killed);
    }
    check(true, MADE_WITH_RINGS, Answer::Made);
    check(false, MADE_WITH_RINGS, Answer::Killed);
    let own = u64::from(std::process::id());
    let abort = [own, own, value(SIGABRT)];
    assert_eq!(answer(&native(false), SYS_tgkill, &abort), Answer::Made);
}

/// Calls that a process with a guest makes as well.
const MADE_WITH_GUEST: &[Made] = &[
    (SYS_sendmsg, &[3, ADDRESS, 0]),
    (SYS_epoll_create1, &[value(EPOLL_CLOEXEC)]),
    (SYS_epoll_ctl, &[3, 1, 4, ADDRESS]),
    (SYS_epoll_pwait, &[3, ADDRESS, 100]),
    (SYS_fcntl, &[3, value(F_DUPFD_CLOEXEC), 3]),
];

/// Calls that end it all the same.
const DEADLY_WITH_GUEST: &[Made] = &[
    (SYS_socket, &[1, 1]),
    (SYS_connect, &[3, ADDRESS, 16]),
    (SYS_fcntl, &[3, value(F_DUPFD)]),
    (SYS_fcntl, &[3, value(F_SETOWN), 1]),
    (SYS_io_uring_enter, &[3, 1]),
];

#[test]
fn a_guest_needs_its_monitor_and_no_more() {
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let profile = Profile {
        guest: true,
        ..Profile::default()
    };
    let programs = programs(&profile, arch).unwrap();
    for &(call, args) in MADE.iter().chain(MADE_WITH_GUEST) {
        assert_eq!(answer(&programs, call, args), Answer::Made, "call {call}");
    }
    for &(call, args) in DEADLY_WITH_GUEST {
        assert_eq!(answer(&programs, call, args), Answer::Killed, "call {call}");
    }
    check(false, MADE_WITH_GUEST, Answer::Killed);
}

/// Each call that depends on its arguments stands in the lists above, on both sides.
#[test]
fn no_condition_is_left_untried() {
    let names = |lists: [&[Made]; 2]| -> BTreeSet<Call> {
        let all = lists.into_iter().flatten();
        all.map(|&(call, _)| call).collect()
    };
    let made = names([MADE, MADE_WITH_RINGS]);
    let deadly = names([DEADLY, DEADLY_WITH_RINGS]);
    for (call, _, why) in WITH_ARGUMENTS.iter().chain(RINGS_WITH_ARGUMENTS) {
        assert!(made.contains(call), "call {call} ({why})");
        assert!(deadly.contains(call), "call {call} ({why})");
    }
}

/// A call in a list without conditions has its answer whatever its arguments are.
#[test]
fn every_listed_call_has_its_answer() {
    let programs = native(false);
    let expect = |calls: &[(Call, &str)], expected| {
        for (call, why) in calls {
            for args in [[0; 6], [u64::MAX; 6]] {
                assert_eq!(answer(&programs, *call, &args), expected, "{call}: {why}");
            }
        }
    };
    expect(ALLOWED, Answer::Made);
    expect(OLDER, Answer::Made);
    let refused = Answer::Error(value(EACCES));
    expect(REFUSED, refused);
    expect(REFUSED_OLDER, refused);
    let unknown = Answer::Error(value(ENOSYS));
    expect(UNKNOWN, unknown);
    for newer in NEWEST + 1..=NEWEST + NEWER {
        assert_eq!(answer(&programs, newer, &[]), unknown, "call {newer}");
    }
    let all: [&[(Call, &str)]; 5] = [ALLOWED, OLDER, REFUSED, REFUSED_OLDER, UNKNOWN];
    let named: BTreeSet<Call> = all.into_iter().flatten().map(|&(call, _)| call).collect();
    let bound = [MADE, MADE_WITH_RINGS, DEADLY];
    let bound: BTreeSet<Call> = bound.into_iter().flatten().map(|&(call, _)| call).collect();
    let others = (0..=NEWEST).filter(|call| !named.contains(call) && !bound.contains(call));
    for other in others.chain([NEWEST + NEWER + 1]) {
        assert_eq!(
            answer(&programs, other, &[]),
            Answer::Killed,
            "call {other}"
        );
    }
}

/// A call of another processor's interface has the number of a different call there.
#[test]
fn calls_of_another_interface_end_the_process() {
    let other = match std::env::consts::ARCH {
        "x86_64" => TargetArch::aarch64,
        _ => TargetArch::x86_64,
    };
    let programs = programs(&Profile::default(), other).unwrap();
    assert_eq!(answer(&programs, SYS_read, &[]), Answer::Killed);
}

#[test]
fn no_call_is_in_two_groups() {
    let plain = [ALLOWED, OLDER, RINGS, REFUSED, REFUSED_OLDER, UNKNOWN];
    let plain = plain.into_iter().flatten().map(|&(call, why)| (call, why));
    let bound = WITH_ARGUMENTS.iter().chain(RINGS_WITH_ARGUMENTS);
    let bound = bound.map(|&(call, _, why)| (call, why));
    let mut seen = BTreeSet::new();
    for (call, why) in plain.chain(bound) {
        assert!(seen.insert(call), "call {call} is listed twice");
        assert!(!why.is_empty(), "call {call} has no reason");
        assert!(call <= NEWEST, "call {call} is newer than the newest");
    }
}

#[test]
fn only_what_is_needed_is_listed() {
    let file = listed(&Profile::default()).unwrap();
    for call in [
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_io_uring_setup,
        libc::SYS_execve,
        libc::SYS_ptrace,
        libc::SYS_unshare,
        libc::SYS_mount,
        libc::SYS_kill,
        libc::SYS_sendmsg,
        libc::SYS_sched_setaffinity,
    ] {
        assert!(!file.contains_key(&call), "call {call}");
    }
    // A call that ends any thread, unless its argument is this process.
    assert_eq!(file[&libc::SYS_tgkill].len(), 1);
    let ringed = listed(&Profile {
        rings: true,
        ..Profile::default()
    })
    .unwrap();
    assert!(ringed.contains_key(&libc::SYS_io_uring_enter));
    assert!(!ringed.contains_key(&libc::SYS_io_uring_setup));
    assert_eq!(ringed[&libc::SYS_io_uring_register].len(), 2);
    assert!(!ringed.contains_key(&libc::SYS_execve));
}
