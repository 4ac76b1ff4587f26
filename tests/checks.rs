//! Permission checks of a mount, its kernel's (`default_permissions`) and its daemon's: a caller
//! without capabilities is answered as by Linux's ext4, call by call, whatever owner and mode.

use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, Subject, ensure, need, report, tools};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("python3"),
    Need::Tool("setpriv"),
];

/// Callers with the ids of the mount's user. All but the last have no capability that counts.
const CALLERS: [&[&str]; 3] = [
    &[
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--groups=0,77",
    ],
    &[
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--clear-groups",
    ],
    &["env"],
];

/// Runs `tests/permission_calls.py` by `caller`: what it printed.
fn calls(caller: &[&str], what: &str, dir: &Path) -> Result<String> {
    let script = tools::workspace().join("tests/permission_calls.py");
    let cmd = Cmd::new(caller[0]).args(&caller[1..]).arg("python3");
    Ok(cmd.arg(script).arg(what).arg(dir).ok()?.out)
}

/// The answers of a file system to all calls of `caller`, on a tree that the kernel has not cached.
fn answers(subject: Subject, options: &str, caller: &[&str]) -> Result<String> {
    let image = Image::of_mib(64).args("-N 8192").make()?;
    let mount = subject.mount(image.path(), options)?;
    calls(&["env"], "make", mount.dir())?;
    mount.unmount()?;
    let mount = subject.mount(image.path(), options)?;
    let answers = calls(caller, "try", mount.dir())?;
    mount.unmount()?;
    image.fsck_clean()?;
    Ok(answers)
}

#[test]
fn calls_are_answered_as_by_linux() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for caller in CALLERS {
        let on_linux = answers(Subject::Ext4, "", caller)?;
        ensure!(
            on_linux.lines().count() > 9000,
            "{}",
            on_linux.lines().count()
        );
        for options in [
            "",
            "nodefault_permissions",
            "nodefault_permissions,nowriteback_cache",
        ] {
            let here = answers(Subject::Extant, options, caller)?;
            let pairs = on_linux.lines().zip(here.lines());
            let differs: Vec<String> = pairs
                .filter(|(linux, here)| linux != here)
                .map(|(linux, here)| format!("{linux}; here {here}"))
                .collect();
            let (few, count) = (differs.len().min(20), differs.len());
            ensure!(
                count == 0,
                "{caller:?}, {options}: {count}: {:#?}",
                &differs[..few]
            );
            ensure!(
                on_linux.lines().count() == here.lines().count(),
                "{options}"
            );
        }
        report(&format!("{caller:?}: as on Linux"));
    }
    Ok(())
}

/// No other user may be on a mount whose kernel walks cached paths without a check.
#[test]
fn other_users_need_the_kernels_checks() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let both = Subject::Extant.mount(image.path(), "nodefault_permissions,allow_other");
    ensure!(both.is_err(), "it is mounted");
    let mount = Subject::Extant.mount(image.path(), "nodefault_permissions")?;
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "ls"];
    let listed = Cmd::new("setpriv").args(user).arg(mount.dir()).run()?;
    ensure!(
        listed.code != Some(0),
        "another user: {}",
        listed.describe()
    );
    mount.unmount()?;
    // Nothing can change on a read-only mount: the kernel checks.
    let mount = Subject::Extant.mount(image.path(), "nodefault_permissions,ro")?;
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    let dir = mount.dir().display().to_string();
    let line = table
        .lines()
        .find(|line| line.contains(&dir))
        .unwrap_or_default();
    ensure!(line.contains("default_permissions"), "{line}");
    mount.unmount()?;
    image.fsck_clean()
}
