//! pjdfstest, the POSIX conformance suite: whatever passes on Linux's ext4 passes on Extant.
//!
//! Exceptions are in `pjdfstest.exceptions`, a name and a reason per line. One that has come to
//! pass fails here too: the list says what is true today.

use extant_testkit::tools::{PJDFSTEST, from_crates_io};
use extant_testkit::{Cmd, Image, Mount, Need, Result, Subject, TempDir, ensure, need, report};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
const EXCEPTIONS: &str = include_str!("pjdfstest.exceptions");

/// Needs of pjdfstest: two users other than root that any Debian has. Remounting read-only is left
/// out: on Linux's own ext4 it fails now and then with "busy".
const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

#[test]
fn extant_passes_what_linux_passes() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, on_linux) = run(Subject::Ext4, "")?;
    image.fsck_clean()?;
    let subject = Subject::under_test();
    let options = match subject {
        Subject::Ext4 => "",
        Subject::Extant => "suid,dev,allow_other",
        Subject::Fuse2fs => "suid,dev,allow_other,default_permissions",
    };
    let (image, here) = run(subject, options)?;
    image.fsck_clean()?;

    let expected: Vec<&String> = on_linux
        .iter()
        .filter(|(_, o)| **o == Outcome::Ok)
        .map(|(n, _)| n)
        .collect();
    ensure!(
        expected.len() > 350,
        "only {} tests pass on Linux: pjdfstest is not set up",
        expected.len()
    );
    let excepted: Vec<&str> = EXCEPTIONS
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    let mut wrong = Vec::new();
    for name in &expected {
        let ok = here.get(*name) == Some(&Outcome::Ok);
        match (ok, excepted.contains(&name.as_str())) {
            (false, false) => wrong.push(format!("{name}: {:?}", here.get(*name))),
            (true, true) => wrong.push(format!("{name} passes: take it off the exceptions")),
            _ => {}
        }
    }
    for name in &excepted {
        if !expected.iter().any(|e| e == name) {
            wrong.push(format!(
                "{name} is excepted, but does not pass on Linux either"
            ));
        }
    }
    report(&format!(
        "pjdfstest on {}: {} of the {} that pass on Linux, {} excepted",
        subject.name(),
        expected.len() - wrong.len() - excepted.len(),
        expected.len(),
        excepted.len()
    ));
    ensure!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    Skipped,
    Failed(String),
}

fn run(subject: Subject, options: &str) -> Result<(Image, BTreeMap<String, Outcome>)> {
    let tool = from_crates_io(PJDFSTEST)?;
    // One test writes beyond 2 GiB, sparsely.
    let image = Image::of_mib(512).make()?;
    let mount: Mount = subject.mount(image.path(), options)?;
    std::fs::set_permissions(mount.dir(), std::fs::Permissions::from_mode(0o777))?;
    let other = TempDir::new("pjdfstest")?;
    std::fs::write(other.join("pjdfstest.toml"), CONFIG)?;
    let o = Cmd::new(tool)
        .arg("-c")
        .arg(other.join("pjdfstest.toml"))
        .arg("-p")
        .arg(mount.dir())
        .arg("-s")
        .arg(other.path())
        .env("NO_COLOR", "1")
        .limit(Duration::from_secs(300))
        .run()?;
    let all = parse(&o.out);
    ensure!(
        all.len() > 350,
        "pjdfstest ran only {} tests: {}",
        all.len(),
        o.describe()
    );
    mount.unmount()?;
    Ok((image, all))
}

fn parse(text: &str) -> BTreeMap<String, Outcome> {
    let mut all = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let outcome = match words.as_slice() {
            [name, word] if !line.starts_with('\t') && name.contains("::") => match *word {
                "ok" => Outcome::Ok,
                "skipped" => Outcome::Skipped,
                "FAILED" => Outcome::Failed(String::new()),
                _ => continue,
            },
            // The line after a failure says why.
            _ => {
                if let Some(Outcome::Failed(why)) = last.take().and_then(|n| all.get_mut(&n)) {
                    *why = line.trim().to_owned();
                }
                continue;
            }
        };
        let name = words.first().copied().unwrap_or_default().to_owned();
        last = Some(name.clone());
        all.insert(name, outcome);
    }
    all
}

#[test]
fn the_output_of_pjdfstest_is_understood() {
    let text =
        "open::a::b      ok\nopen::c  FAILED\n\tENOTDIR expected\nopen::d skipped\n\twhy: not\n";
    let all = parse(text);
    assert_eq!(all.get("open::a::b"), Some(&Outcome::Ok));
    assert_eq!(
        all.get("open::c"),
        Some(&Outcome::Failed("ENOTDIR expected".into()))
    );
    assert_eq!(all.get("open::d"), Some(&Outcome::Skipped));
}
