//! The list of calls as programs that the kernel runs before each call.
//!
//! A program has one answer for the calls that it names and one for all others. So there are three
//! of them, and the kernel takes the strictest answer: [`SeccompAction::KillProcess`] before an
//! error, and that before [`SeccompAction::Allow`].

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::calls::{
    ALLOWED, Argument, BY_DESCRIPTOR, Call, Condition, NETWORK, NEWER, NEWEST, OLDER, REFUSED,
    REFUSED_OLDER, RINGS, RINGS_WITH_ARGUMENTS, UNKNOWN, WITH_ARGUMENTS,
};
use crate::profile::{Profile, Server};

/// Why the list is not in force.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The programs could not be made.
    #[error(transparent)]
    Program(#[from] seccompiler::BackendError),
    /// The kernel refused one.
    #[error(transparent)]
    Kernel(#[from] seccompiler::Error),
}

/// The rules of each call that a program names; a call without rules is named with any arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Puts the list into force for all threads. Returns false if the kernel has no such filters.
pub(crate) fn install(profile: &Profile) -> Result<bool, FilterError> {
    let programs = [
        (refused()?, SeccompAction::Allow, errno(libc::EACCES)),
        (unknown(), SeccompAction::Allow, errno(libc::ENOSYS)),
        (
            listed(profile)?,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
        ),
    ];
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        // There is no list for this processor.
        return Ok(false);
    };
    let mut made = Vec::new();
    for (rules, others, named) in programs {
        let filter = SeccompFilter::new(rules, others, named, arch)?;
        made.push(BpfProgram::try_from(filter)?);
    }
    for program in &made {
        match apply_filter_all_threads(program) {
            Ok(()) => {}
            // The kernel was built without them.
            Err(seccompiler::Error::Seccomp(error))
                if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

/// The calls that do not end the process: those that are made, and those that another program
/// answers with an error.
fn listed(profile: &Profile) -> Result<Rules, FilterError> {
    let mut rules = Rules::new();
    let any = |calls: &[(Call, &str)], rules: &mut Rules| {
        rules.extend(calls.iter().map(|&(call, _)| (call, Vec::new())));
    };
    for calls in [ALLOWED, OLDER, REFUSED, REFUSED_OLDER] {
        any(calls, &mut rules);
    }
    rules.extend(unknown());
    rules.extend(BY_DESCRIPTOR.iter().map(|&(call, ..)| (call, Vec::new())));
    let of_rings = match profile.rings {
        true => RINGS_WITH_ARGUMENTS,
        false => &[],
    };
    for &(call, alternatives, _) in WITH_ARGUMENTS.iter().chain(of_rings) {
        let made = alternatives.iter().map(|&one| rule(&[one]));
        rules.insert(call, made.collect::<Result<_, _>>()?);
    }
    // Ending itself, with a signal that shows in its exit status.
    let own = Argument::Is(u64::from(std::process::id()));
    rules.insert(libc::SYS_tgkill, vec![rule(&[(0, own)])?]);
    if profile.rings {
        any(RINGS, &mut rules);
    }
    if let Some(server) = profile.server {
        any(NETWORK, &mut rules);
        rules.insert(libc::SYS_socket, sockets(server)?);
    }
    Ok(rules)
}

/// Sockets by which a server is reached.
fn sockets(server: Server) -> Result<Vec<SeccompRule>, FilterError> {
    let families: &[i32] = match server {
        Server::Tcp(_) => &[libc::AF_INET, libc::AF_INET6],
        Server::Unix => &[libc::AF_UNIX],
    };
    let of = |&family: &i32| {
        let family = (0, Argument::Is(u64::from(family.unsigned_abs())));
        let stream = (
            1,
            Argument::Has(u64::from(libc::SOCK_STREAM.unsigned_abs())),
        );
        rule(&[family, stream])
    };
    families.iter().map(of).collect()
}

/// The calls that are answered with `EACCES`.
fn refused() -> Result<Rules, FilterError> {
    let named = REFUSED.iter().chain(REFUSED_OLDER);
    let mut rules: Rules = named.map(|&(call, _)| (call, Vec::new())).collect();
    let empty = Argument::Lacks(u64::from(libc::AT_EMPTY_PATH.unsigned_abs()));
    for &(call, number, _) in BY_DESCRIPTOR {
        rules.insert(call, vec![rule(&[(number, empty)])?]);
    }
    Ok(rules)
}

/// The calls that are answered with `ENOSYS`.
fn unknown() -> Rules {
    let named = UNKNOWN.iter().map(|&(call, _)| call);
    let newer = NEWEST + 1..=NEWEST + NEWER;
    named.chain(newer).map(|call| (call, Vec::new())).collect()
}

/// All of these conditions on arguments.
fn rule(conditions: &[Condition]) -> Result<SeccompRule, FilterError> {
    let one = |&(number, argument): &Condition| {
        let (operation, value) = match argument {
            Argument::Is(value) => (SeccompCmpOp::Eq, value),
            Argument::Has(bits) => (SeccompCmpOp::MaskedEq(bits), bits),
            Argument::Lacks(bits) => (SeccompCmpOp::MaskedEq(bits), 0),
        };
        // The arguments in question are ints.
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, operation, value)
    };
    let conditions = conditions.iter().map(one).collect::<Result<_, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_call_is_in_two_groups() {
        let plain = [
            ALLOWED,
            OLDER,
            RINGS,
            NETWORK,
            REFUSED,
            REFUSED_OLDER,
            UNKNOWN,
        ];
        let plain = plain.into_iter().flatten().map(|&(call, why)| (call, why));
        let bound = WITH_ARGUMENTS.iter().chain(RINGS_WITH_ARGUMENTS);
        let bound = bound.map(|&(call, _, why)| (call, why));
        let by = BY_DESCRIPTOR.iter().map(|&(call, _, why)| (call, why));
        let mut seen = BTreeSet::new();
        for (call, why) in plain.chain(bound).chain(by) {
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
        ] {
            assert!(!file.contains_key(&call), "call {call}");
        }
        // A call that ends any thread, unless its argument is this process.
        assert_eq!(file[&libc::SYS_tgkill].len(), 1);
        let server = Some(Server::Tcp(10809));
        let remote = listed(&Profile {
            server,
            rings: true,
        })
        .unwrap();
        assert_eq!(remote[&libc::SYS_socket].len(), 2);
        assert!(remote.contains_key(&libc::SYS_io_uring_enter));
        assert!(!remote.contains_key(&libc::SYS_io_uring_setup));
        assert_eq!(remote[&libc::SYS_io_uring_register].len(), 2);
        assert!(!remote.contains_key(&libc::SYS_execve));
    }
}
