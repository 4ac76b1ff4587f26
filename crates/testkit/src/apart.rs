//! Mount namespaces of a test's own.
//!
//! A new namespace has every mount of the one that it comes from, those of the suites that run
//! beside it too, and keeps them in use: an unmount there would not close their images. So each
//! lets go of them first.

use std::path::Path;

use extant_host::Cmd;

/// Shell text that lets go of the mounts of other tests, all but those that `$0` names with a blank
/// around each, and goes on with the program in its arguments. For `unshare --mount sh -c`. It
/// starts no program before the unmount, for until then the others wait.
pub const LET_GO: &str = r#"held=
while read -r _ _ _ _ at _; do
    case "$0" in *" $at "*) continue ;; esac
    case $at in */extant-*) held="$at $held" ;; esac
done </proc/self/mountinfo
[ -z "$held" ] || umount -l $held 2>/dev/null
exec "$@""#;

/// A program, by the arguments that are added, in a mount namespace of its own, with the mounts at
/// `shown` and without those of other tests.
pub fn apart(shown: &[&Path]) -> Cmd {
    let shown: String = shown
        .iter()
        .map(|dir| format!(" {} ", dir.display()))
        .collect();
    let script = ["--mount", "--propagation=private", "sh", "-c", LET_GO];
    // The name of the script even if no mount is shown.
    Cmd::new("unshare").args(script).arg(format!("{shown} "))
}
