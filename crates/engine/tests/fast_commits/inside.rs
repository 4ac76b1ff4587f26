//! Files of Linux whose data was inside of the inode, and moved out in a fast commit.

use std::fs::File;
use std::os::unix::fs::FileExt;

use extant_testkit::mount::Subject;
use extant_testkit::tree::Tree;
use extant_testkit::{Cmd, Context, Image, Result, content, ensure, need};

use super::kit::{ALIKE, NEEDS, fast_commits, judge};

#[test]
fn files_that_leave_their_inodes_are_replayed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let size = "-J size=8,fast_commit_size=512";
    for args in [
        "-b 4096 -O inline_data,fast_commit",
        "-b 1024 -O inline_data,fast_commit,^metadata_csum,orphan_file",
    ] {
        let image = Image::of_mib(64).args(args).args(size).make()?;
        let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
        for number in 0..9 {
            let bytes = content::fill(number, 0, 50);
            std::fs::write(mount.join(format!("file{number}")), bytes)?;
        }
        Cmd::new("sync").arg("-f").arg(mount.dir()).ok()?;
        for number in 0..9 {
            let path = mount.join(format!("file{number}"));
            let file = File::options().write(true).open(path)?;
            match number % 3 {
                0 => file.write_all_at(&content::fill(number, 50, 5000), 50)?,
                1 => file.set_len(3000)?,
                _ => file.write_all_at(&content::fill(number, 0, 20), 30_000)?,
            }
            file.sync_all()?;
        }
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        mount.unmount()?;
        let commits = fast_commits(&copy)?;
        ensure!(commits > 4, "{args}: only {commits} fast commits");
        judge(&copy, &live, ALIKE).context(|| args.to_string())?;
    }
    Ok(())
}
