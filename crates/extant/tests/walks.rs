//! Walks over trees that change, and that are deeper than a path is long.

use extant::testing::filesystem;
use extant::{CopyRefusal, Cred, Error, Filesystem};
use extant_testkit::{Image, Need, Result, need};

const SIZE: u64 = 16 << 20;

/// A walk goes where the directory is that it has returned, and through no link that took its name.
#[test]
fn a_link_in_the_place_of_a_directory_leads_nowhere() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/top/dir")?;
    fs.create_dir_all("/secret/inner")?;
    let mut walk = fs.walk_dir("/top")?;
    let dir = walk.next().unwrap()?;
    assert_eq!(dir.name(), "dir");
    fs.rename("/top/dir", "/moved")?;
    fs.symlink("/secret", "/top/dir")?;
    let next = walk.next();
    assert!(matches!(next, Some(Err(Error::NotDir))), "{next:?}");
    assert!(walk.next().is_none());
    Ok(())
}

/// One that was moved whole is still walked, by its name in the directory that was listed.
#[test]
fn a_walk_goes_on_below_a_directory_that_was_renamed_above() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/top/dir/deep/er")?;
    let mut walk = fs.walk_dir("/top")?;
    walk.next().unwrap()?;
    fs.rename("/top", "/elsewhere")?;
    fs.create_dir_all("/top/dir/other")?;
    let names: Vec<_> = walk
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    assert_eq!(names, ["deep", "er"]);
    Ok(())
}

/// The directories below `/` with these names, one in the other.
fn nested(fs: &Filesystem, names: &[Vec<u8>]) -> Result<()> {
    let (volume, cred) = (fs.volume(), Cred::root());
    let mut dir = volume.root()?;
    for name in names {
        dir = volume.mkdir(&dir, name, 0o755, &cred)?;
    }
    Ok(())
}

#[test]
fn a_tree_may_be_deeper_than_a_path_is_long() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.remove_dir("/lost+found")?;
    let names: Vec<Vec<u8>> = (0..40).map(|_| vec![b'x'; 255]).collect();
    nested(&fs, &names)?;
    let mut depth = 0;
    for entry in fs.walk_dir("/")? {
        assert_eq!(entry?.name().len(), 255);
        depth += 1;
    }
    assert_eq!(depth, 40);
    Ok(())
}

/// Names that a walk returns from its first entry on, where `change` is made once it was returned.
fn names_after(fs: &Filesystem, change: impl FnOnce(&str) -> Result<()>) -> Result<Vec<String>> {
    let mut walk = fs.walk_dir("/top")?;
    let first = walk.next().unwrap()?.path();
    let first = first.to_str().unwrap().to_owned();
    let inner = walk.next().unwrap()?;
    assert_eq!(inner.path().parent().unwrap().to_str(), Some(&*first));
    // What is in it was returned, so its directory is entered.
    change(&first)?;
    walk.map(|entry| Ok(entry?.path().to_str().unwrap().to_owned()))
        .collect()
}

/// The listing of the directory below finds it again, and it is no damage.
#[test]
fn a_directory_that_was_moved_on_the_way_is_not_damaged() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/top/a/in")?;
    fs.create_dir_all("/top/b/in")?;
    // The one that was entered goes to the other one.
    let names = names_after(&fs, |first| {
        let other = if first == "/top/a" {
            "/top/b"
        } else {
            "/top/a"
        };
        Ok(fs.rename(first, format!("{other}/moved"))?)
    })?;
    let moved: Vec<_> = names
        .iter()
        .filter(|name| name.ends_with("/moved"))
        .collect();
    assert_eq!(moved.len(), 1, "{names:?}");
    let in_moved = names.iter().filter(|name| name.contains("/moved/"));
    assert_eq!(in_moved.count(), 0, "it was walked where it was: {names:?}");
    Ok(())
}

/// One that has both names is damage, and is walked once.
#[test]
fn a_second_name_of_a_directory_is_damage() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return Ok(());
    }
    for second in ["/top/two", "/top/one/self", "/top/one/up", "/top/root"] {
        let image = Image::of_mib(16).make()?;
        let fs = Filesystem::options().write(true).open(image.path())?;
        fs.create_dir_all("/top/one/in")?;
        fs.create_dir_all("/copy")?;
        fs.unmount()?;
        let first = match second {
            "/top/root" => "/",
            "/top/one/up" => "/top",
            _ => "/top/one",
        };
        image.debugfs_write(&format!("ln {first} {second}"))?;
        let fs = Filesystem::options().write(true).open(image.path())?;
        let (found, damage): (Vec<_>, Vec<_>) = fs.walk_dir("/")?.partition(|entry| entry.is_ok());
        assert!(
            matches!(&damage[..], [Err(Error::Corrupt { .. })]),
            "{second}: {damage:?}"
        );
        // From a directory of the loop, too.
        let top = fs.walk_dir("/top")?.filter(|entry| entry.is_err()).count();
        assert_eq!(top, 1, "{second}");
        let inner = found.iter().flatten().filter(|entry| entry.name() == "in");
        assert_eq!(inner.count(), 1, "{second}");
        let copied = fs.copy_tree("/top", &filesystem(SIZE)?, "/copy");
        // Below the top there is only the root itself.
        let refused = copied.err().and_then(|error| error.refusal());
        let is_damage = matches!(
            refused,
            Some(CopyRefusal::SecondName | CopyRefusal::ContainsItself)
        );
        assert!(is_damage || second == "/top/root", "{second}: {refused:?}");
    }
    Ok(())
}
