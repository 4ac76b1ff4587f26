//! The kernel's machine for filters, as far as the programs use it.

use libc::*;
use seccompiler::BpfProgram;

/// The kernel's answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Made,
    /// An error, by its number.
    Error(u64),
    /// The process is ended.
    Killed,
}

/// Number of this processor's interface in `seccomp_data` (`AUDIT_ARCH_*`).
const ARCH: u32 = match cfg!(target_arch = "x86_64") {
    true => 0xc000_003e,
    // The number of the machine, with the bits for 64-bit and little-endian ones.
    false if cfg!(target_arch = "aarch64") => 0xc000_00b7,
    false => 0xc000_00f3,
};

/// The strictest answer of `programs` to a call; arguments that are not given are zero.
pub(super) fn answer(programs: &[BpfProgram], call: c_long, args: &[u64]) -> Answer {
    let data = data(call, args);
    let answers = programs.iter().map(|program| run(program, &data));
    let strictest = answers.min_by_key(|answer| (answer & SECCOMP_RET_ACTION_FULL).cast_signed());
    let answer = strictest.expect("there is a program");
    match answer & SECCOMP_RET_ACTION_FULL {
        SECCOMP_RET_KILL_PROCESS => Answer::Killed,
        SECCOMP_RET_ALLOW => Answer::Made,
        SECCOMP_RET_ERRNO => Answer::Error(u64::from(answer & SECCOMP_RET_DATA)),
        other => panic!("the action {other:#x}"),
    }
}

/// The words of a `seccomp_data`: the call's number, the processor, the address of the caller, and
/// six arguments in the processor's byte order.
fn data(call: c_long, args: &[u64]) -> Vec<u32> {
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(call).unwrap().to_ne_bytes());
    bytes.extend(ARCH.to_ne_bytes());
    bytes.extend([0; 8]);
    let args = args.iter().copied().chain(std::iter::repeat(0));
    bytes.extend(args.take(6).flat_map(u64::to_ne_bytes));
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

const LOAD: u32 = BPF_LD | BPF_W | BPF_ABS;
const AND: u32 = BPF_ALU | BPF_AND | BPF_K;
const JUMP: u32 = BPF_JMP | BPF_JA;
const EQUAL: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const GREATER: u32 = BPF_JMP | BPF_JGT | BPF_K;
const AT_LEAST: u32 = BPF_JMP | BPF_JGE | BPF_K;
const RETURN: u32 = BPF_RET | BPF_K;

/// Runs one program; returns its answer. Jumps lead forward, so it ends.
fn run(program: &BpfProgram, data: &[u32]) -> u32 {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let mut branch = |holds| at += usize::from(if holds { step.jt } else { step.jf });
        match u32::from(step.code) {
            LOAD => accumulator = data[step.k as usize / 4],
            AND => accumulator &= step.k,
            JUMP => at += step.k as usize,
            EQUAL => branch(accumulator == step.k),
            GREATER => branch(accumulator > step.k),
            AT_LEAST => branch(accumulator >= step.k),
            RETURN => return step.k,
            other => panic!("the instruction {other:#x}"),
        }
    }
}
