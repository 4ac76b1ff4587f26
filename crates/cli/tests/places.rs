//! A failure is one line that says where: `extant: COMMAND: WHERE: WHAT`.

use std::fs;

use extant_testkit::{Cmd, Result, TempDir, ensure};

/// Lines that fail, and what they fail at; nothing of one that the grammar refuses.
const LINES: &[(&str, &str)] = &[
    ("mkfs disk.img", "disk.img"),
    ("mkfs none.img", "none.img"),
    ("mkfs tree", "tree"),
    ("mkfs -O no_such new.img 16M", ""),
    ("build tree disk.img", "disk.img"),
    ("build --size 2M tree new.img", "new.img"),
    ("build --size 1K tree new.img", "new.img"),
    ("build none new.img", "none"),
    ("build tree none/new.img", "none/new.img"),
    ("resize junk.img 16M", "junk.img"),
    ("resize disk.img 1K", "disk.img"),
    ("info junk.img", "junk.img"),
    ("check empty.img", "empty.img"),
    ("check none.img", "none.img"),
    ("fix junk.img", "junk.img"),
    ("trim none.img", "none.img"),
    ("ls junk.img:/", "junk.img"),
    ("ls disk.img:/none", "disk.img:/none"),
    ("tree disk.img:/none", "disk.img:/none"),
    ("find disk.img:/none", "disk.img:/none"),
    ("du none.img", "none.img"),
    ("df junk.img", "junk.img"),
    ("stat disk.img:/none", "disk.img:/none"),
    ("cat disk.img:/none", "disk.img:/none"),
    ("cp tree/file disk.img:/none/file", "disk.img:/none/file"),
    ("cp none disk.img:/none", "none"),
    (
        "cp disk.img:/lost+found/none .",
        "disk.img:/lost+found/none",
    ),
    ("export disk.img:/none new.tar", "disk.img:/none"),
    ("export junk.img new.tar", "junk.img"),
    ("untar -f tree/file disk.img:/", "tree/file"),
    ("untar -f none.tar disk.img:/", "none.tar"),
    ("mv disk.img:/none disk.img:/other", "disk.img:/none"),
    ("rm disk.img:/none", "disk.img:/none"),
    ("mkdir disk.img:/none/sub", "disk.img:/none/sub"),
    ("ln -s target disk.img:/none/link", "disk.img:/none/link"),
    ("touch disk.img:/none/new", "disk.img:/none/new"),
    (
        "setfattr -x user.none disk.img:/lost+found",
        "disk.img:/lost+found",
    ),
    ("chmod 644 disk.img:/none", "disk.img:/none"),
    ("chown 0 disk.img:/none", "disk.img:/none"),
    ("fallocate -l 1M disk.img:/none/new", "disk.img:/none/new"),
    ("convert disk.img:/none", "disk.img:/none"),
    ("defrag disk.img:/none", "disk.img:/none"),
    ("diff disk.img none", "none"),
    ("map disk.img:/none", "disk.img:/none"),
    ("stats tree", "tree"),
    ("umount tree", "tree"),
    ("mount junk.img tree", "junk.img"),
    ("mount disk.img none", "none"),
];

#[test]
fn every_failure_names_its_place() -> Result<()> {
    let dir = TempDir::new("places")?;
    let extant = |line: &str| {
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).dir(dir.path());
        cmd.args(line.split_whitespace()).run()
    };
    fs::create_dir_all(dir.join("tree"))?;
    fs::write(dir.join("tree/file"), vec![1; 3 << 20])?;
    fs::write(dir.join("junk.img"), vec![7; 1 << 20])?;
    fs::write(dir.join("empty.img"), b"")?;
    ensure!(extant("mkfs -q disk.img 16M")?.code == Some(0), "mkfs");
    for (line, place) in LINES {
        let ran = extant(line)?;
        let command = line.split(' ').next().unwrap_or_default();
        let text = ran.err.lines().next().unwrap_or_default();
        let Some(said) = text.strip_prefix(&format!("extant: {command}: ")) else {
            // What the grammar itself refuses shows the argument.
            ensure!(
                place.is_empty() && ran.code == Some(2),
                "{}",
                ran.describe()
            );
            continue;
        };
        let full = dir.join(place).display().to_string();
        let named = [*place, &full].map(|place| said.starts_with(&format!("{place}: ")));
        ensure!(
            ran.code > Some(0) && named.contains(&true),
            "{line}: {}",
            ran.describe()
        );
        ensure!(ran.err.lines().count() == 1, "{line}: {}", ran.describe());
    }
    Ok(())
}
