//! Counters of a case are those that its name claims: calls on names are made, direct calls go past
//! the cache by as many threads as it says, each write with an fsync has one, a `writev` is one
//! write, and large files have the plan's size.

mod kit;

use std::time::Duration;

use extant_bench::{Bench, Plan};
use extant_testkit::{Need, Result, ensure, need};
use serde_json::Value;

use kit::{counted, plan, row};

/// Rows of the library in the cases `only` of a family; all if empty. No stream ends early.
fn rows_of(bench: Bench, only: &[&str]) -> Result<Vec<Value>> {
    let plan = Plan {
        benches: vec![bench],
        only: only.iter().map(|case| (*case).to_owned()).collect(),
        large_bytes: 8 << 20,
        sample: Duration::from_secs(600),
        ..plan(&["iomap"], "/nonexistent".into())
    };
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    Ok(all["rows"].as_array().cloned().unwrap_or_default())
}

#[test]
fn calls_on_names_are_made() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let rows = rows_of(Bench::Meta, &[])?;
    for (case, counter) in [
        ("create/1K", "inode_allocs"),
        ("create/threads/2", "inode_allocs"),
        ("write100/1K", "delalloc_sets"),
        ("stat/1K", "lookups"),
        ("open/1K", "lookups"),
        ("chmod/1K", "inode_dirty_calls"),
    ] {
        let r = row(&rows, case, "iomap");
        let threads = if case == "create/threads/2" { 2 } else { 1 };
        ensure!(counted(r, "calls") == threads * 20, "{r}");
        ensure!(counted(r, counter) >= counted(r, "calls"), "{r}");
    }
    Ok(())
}

/// Both columns come out of one run.
#[test]
fn new_small_files_are_written_together_unless_a_variant_says_otherwise() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let plan = Plan {
        benches: vec![Bench::Meta, Bench::Append],
        only: vec!["small/".to_owned(), "append/1x".to_owned()],
        ..plan(&["iomap", "nojoint"], "/nonexistent".into())
    };
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    // All files joined, with one request for their data; or none, with a request for each.
    for (variant, joint, ioends) in [("iomap", 20, 1), ("nojoint", 0, 20)] {
        let r = row(&rows, "small/4K", variant);
        ensure!(
            counted(r, "calls") == 20 && counted(r, "bytes") == 20 * 4096,
            "{r}"
        );
        ensure!(counted(r, "joint_files") == joint, "{r}");
        ensure!(counted(r, "ioends") == ioends, "{r}");
        ensure!(counted(r, "commits") > 0, "{r}");
    }
    let others = rows.iter().filter(|r| r["case"] != "small/4K");
    let others = others.filter(|r| r["variant"] == "nojoint").count();
    ensure!(others == 0, "{all}");
    Ok(())
}

#[test]
fn direct_calls_go_past_the_cache() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let rows = rows_of(Bench::Direct, &[])?;
    for (way, counter) in [("read", "direct_reads"), ("write", "direct_writes")] {
        for (case, calls) in [("4K", 1024), ("64K", 64), ("1M", 4), ("4K/4", 1024)] {
            let r = row(&rows, &format!("direct/{way}/{case}"), "iomap");
            ensure!(counted(r, "calls") == calls, "{r}");
            ensure!(counted(r, counter) == calls, "{r}");
        }
    }
    Ok(())
}

#[test]
fn writes_of_a_disk_are_synced_where_they_say_so() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let cases = ["write/disk/new+sync/1M", "write/disk-cached/new+sync/1M"];
    let rows = rows_of(Bench::Disk, &cases)?;
    for case in cases {
        let r = row(&rows, case, "iomap");
        ensure!(counted(r, "calls") == 4, "{r}");
        ensure!(counted(r, "commits") >= 4, "{r}");
    }
    Ok(())
}

#[test]
fn a_vectored_write_is_one_write() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let cases = ["writev_u1k", "writev_u10k"];
    let rows = rows_of(Bench::Overwrite, &cases)?;
    for (case, size) in cases.into_iter().zip([1 << 10, 10 << 10]) {
        let r = row(&rows, case, "iomap");
        // One that notes the time takes the general way, and is one write there.
        let general = counted(r, "begin_calls");
        let writes = counted(r, "overwrites") + general;
        ensure!(writes == counted(r, "calls"), "{r}");
        ensure!(general <= counted(r, "times_deferred"), "{r}");
        ensure!(
            counted(r, "bytes") == 10 * size * counted(r, "calls"),
            "{r}"
        );
    }
    Ok(())
}

#[test]
fn large_files_and_appends_have_the_plans_sizes() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let cases = ["large/read/ram/1M", "large/append"];
    let rows = rows_of(Bench::Large, &cases)?;
    let r = row(&rows, "large/read/ram/1M", "iomap");
    ensure!(counted(r, "bytes") == 8 << 20, "{r}");
    for (case, calls) in [("32x1KiB", 32 * 20), ("8x2KiB", 8 * 10)] {
        let r = row(&rows, &format!("large/append/{case}"), "iomap");
        ensure!(counted(r, "calls") == calls, "{r}");
    }
    Ok(())
}
