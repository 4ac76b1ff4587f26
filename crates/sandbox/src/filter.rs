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
    ALLOWED, Argument, Call, Condition, GUEST, GUEST_OLDER, GUEST_WITH_ARGUMENTS, NEWER, NEWEST,
    OLDER, REFUSED, REFUSED_OLDER, RINGS, RINGS_WITH_ARGUMENTS, UNKNOWN, WITH_ARGUMENTS,
};
use crate::profile::Profile;

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
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        // There is no list for this processor.
        return Ok(false);
    };
    for program in &programs(profile, arch)? {
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

/// The programs for this processor, in the order in which they are put into force.
fn programs(profile: &Profile, arch: TargetArch) -> Result<Vec<BpfProgram>, FilterError> {
    let lists = [
        (refused(), SeccompAction::Allow, errno(libc::EACCES)),
        (unknown(), SeccompAction::Allow, errno(libc::ENOSYS)),
        (
            listed(profile)?,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
        ),
    ];
    let mut made = Vec::new();
    for (rules, others, named) in lists {
        let filter = SeccompFilter::new(rules, others, named, arch)?;
        made.push(BpfProgram::try_from(filter)?);
    }
    Ok(made)
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
    let of_rings = match profile.rings {
        true => RINGS_WITH_ARGUMENTS,
        false => &[],
    };
    let of_guests = match profile.guest {
        true => GUEST_WITH_ARGUMENTS,
        false => &[],
    };
    for &(call, alternatives, _) in WITH_ARGUMENTS.iter().chain(of_rings).chain(of_guests) {
        let made = alternatives.iter().map(|conditions| rule(conditions));
        let made: Vec<_> = made.collect::<Result<_, _>>()?;
        rules.entry(call).or_default().extend(made);
    }
    // Ending itself, with a signal that shows in its exit status.
    let own = Argument::Is(u64::from(std::process::id()));
    rules.insert(libc::SYS_tgkill, vec![rule(&[(0, own)])?]);
    if profile.rings {
        any(RINGS, &mut rules);
    }
    if profile.guest {
        any(GUEST, &mut rules);
        any(GUEST_OLDER, &mut rules);
    }
    Ok(rules)
}

/// The calls that are answered with `EACCES`.
fn refused() -> Rules {
    let named = REFUSED.iter().chain(REFUSED_OLDER);
    named.map(|&(call, _)| (call, Vec::new())).collect()
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
        // Of an int the kernel takes the lower half, whatever is in the upper one.
        let (len, operation, value) = match argument {
            Argument::Is(value) => (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value),
            Argument::Has(bits) => (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits),
            Argument::Lacks(bits) => (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0),
            Argument::Null => (SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0),
        };
        SeccompCondition::new(number, len, operation, value)
    };
    let conditions = conditions.iter().map(one).collect::<Result<_, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

#[cfg(test)]
mod tests;
