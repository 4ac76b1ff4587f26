//! Every case once, tiny: that it runs, that what is counted fits what is claimed, and that the
//! report has the agreed form. Never how long it took.

mod kit;

use extant_bench::{Bench, Plan, Report};
use extant_testkit::{Need, Result, TempDir, ensure, need, tools};
use serde_json::Value;

use kit::{counted, plan, row};

#[test]
fn every_case_runs_in_the_library() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let plan = plan(
        &["memcpy", "memset", "iomap", "iomap-order0", "mount"],
        "/nonexistent".into(),
    );
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    ensure!(
        report.not_measured() == ["mount: no command at /nonexistent"],
        "{:?}",
        report.not_measured()
    );
    let all = report.json();
    ensure!(all["machine"]["cores"].as_u64() > Some(0), "{all}");
    ensure!(all["machine"]["load"].is_number(), "{all}");
    let date = all["machine"]["date"].as_str().unwrap_or_default();
    ensure!(date.len() == 10 && date.starts_with("20"), "{all}");
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    let count = |bench: Bench, variant: &str| {
        rows.iter()
            .filter(|r| r["bench"] == bench.name() && r["variant"] == variant)
            .count()
    };
    for bench in Bench::ALL {
        // Devices have no file system, and rounds of peers none that is not mounted; images are
        // made by programs.
        let has_library = !matches!(bench, Bench::Device | Bench::Peers | Bench::Build);
        ensure!((count(bench, "iomap") >= 3) == has_library, "{all}");
        // Folios of the cache mean nothing to direct writes.
        let expected = match bench {
            Bench::Overwrite | Bench::Psync | Bench::Append | Bench::Parallel => {
                count(bench, "iomap")
            }
            _ => 0,
        };
        ensure!(count(bench, "iomap-order0") == expected, "{all}");
    }
    ensure!(
        count(Bench::Overwrite, "memcpy") == count(Bench::Overwrite, "iomap"),
        "{all}"
    );
    ensure!(count(Bench::Psync, "memset") == 3, "{all}");
    every_row_is_whole(&rows)?;
    counters_fit(&rows)?;
    everything_is_shown(&report)
}

fn every_row_is_whole(rows: &[Value]) -> Result<()> {
    for r in rows {
        let figure = |name: &str| r[name].as_f64().unwrap_or(-1.0);
        ensure!(
            figure("min") >= 0.0 && figure("max") >= figure("median"),
            "{r}"
        );
        // Large files are measured several times while they are there.
        let runs = if r["bench"] == "large" { 3 } else { 1 };
        ensure!(r["runs"] == runs && r["unit"].is_string(), "{r}");
        // Growth counts nothing, nor does what stands beside a case's own figure.
        let case = r["case"].as_str().unwrap_or_default();
        let beside = ["1M/first", "/longest", "/requests", "4K/clear", "4M/clear"];
        let beside = beside.iter().any(|name| case.ends_with(name));
        let uncounted = r["bench"] == "scale" || beside;
        ensure!(uncounted || counted(r, "calls") > 0, "{r}");
        let names = ["/create", "/stat", "/unlink"];
        let names = r["bench"] == "meta" || names.iter().any(|name| case.ends_with(name));
        ensure!(uncounted || names || counted(r, "bytes") > 0, "{r}");
    }
    Ok(())
}

/// Counters of a case fit what the case is for.
fn counters_fit(rows: &[Value]) -> Result<()> {
    // A cached overwrite asks for no mapping and starts no handle, wherever in a folio it is; but
    // where it notes the time it takes the general way.
    for case in [
        "write_u1k",
        "pwrite_u1k",
        "pwrite_u1k/end",
        "pwrite_u1k/prefill2M/end",
        "pwrite_u10k/middle",
    ] {
        let r = row(rows, case, "iomap");
        let general = counted(r, "begin_calls");
        ensure!(
            counted(r, "overwrites") + general == counted(r, "calls"),
            "{r}"
        );
        ensure!(
            general <= counted(r, "times_deferred") && counted(r, "handles") == 0,
            "{r}"
        );
    }
    // Folios follow the size of writes, by default.
    ensure!(
        counted(row(rows, "write/cache/new/1M", "iomap"), "folio_order_8") == 4,
        "{rows:?}"
    );
    ensure!(
        counted(
            row(rows, "write/cache/new/1M", "iomap-order0"),
            "folio_order_0"
        ) == 1024,
        "{rows:?}"
    );
    let r = row(rows, "writeback/null/1M", "iomap");
    ensure!(
        counted(r, "wb_bytes") == 4 << 20 && counted(r, "map_calls") <= 2,
        "{r}"
    );
    ensure!((1..8).contains(&counted(r, "handles")), "{r}");
    for case in ["write/cache/new/64K", "write/cache/overwrite/64K"] {
        ensure!(
            counted(row(rows, case, "iomap"), "wb_bytes") == 0,
            "{case} wrote back"
        );
    }
    ensure!(
        counted(row(rows, "write/ram/new+sync/1M", "iomap"), "commits") > 0,
        "{rows:?}"
    );
    ensure!(
        counted(row(rows, "read/ram/64K", "iomap"), "fill_bytes") > 0,
        "{rows:?}"
    );
    ensure!(
        counted(row(rows, "read/cache/64K", "iomap"), "fill_bytes") == 0,
        "{rows:?}"
    );
    Ok(())
}

fn everything_is_shown(report: &Report) -> Result<()> {
    let (text, markdown) = (report.text(), report.markdown());
    for part in [
        "pwrite_u1k/end",
        "read/ram/4K",
        "not measured: mount",
        ", 1 round",
    ] {
        ensure!(
            text.contains(part) && markdown.contains(part),
            "{part}: {text}"
        );
    }
    ensure!(markdown.contains("| iomap / memcpy |"), "{markdown}");
    let dir = TempDir::new("plots")?;
    extant_bench::plot(report, &dir.join("new"))?;
    for name in [
        "overwrite-pwrite.svg",
        "psync-read-ram.svg",
        "psync-read-hole.svg",
    ] {
        let svg = std::fs::read_to_string(dir.join("new").join(name))?;
        ensure!(
            svg.contains("iomap-order0") && svg.contains("</svg>"),
            "{name}: {svg}"
        );
    }
    Ok(())
}

/// The walks and the handles that the seeds are about, per call.
#[test]
fn variants_of_the_per_block_path_differ_in_what_they_count() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let names = [
        "iomap",
        "bufferhead",
        "bufferhead-fullwalk",
        "base",
        "base-dirty-inode",
    ];
    let mut plan = plan(&names, "/nonexistent".into());
    plan.only = ["pwrite_u1k/prefill2M", "append/32x1KiB"]
        .map(str::to_owned)
        .to_vec();
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    let per_call = |case: &str, variant: &str, counter: &str| {
        let r = row(&rows, case, variant);
        counted(r, counter) / counted(r, "calls")
    };
    for (variant, start, middle, end) in [
        ("iomap", 0, 0, 0),
        ("bufferhead", 1, 257, 512),
        ("bufferhead-fullwalk", 512, 512, 512),
        ("base", 1, 1, 1),
    ] {
        for (spot, expected) in [("start", start), ("middle", middle), ("end", end)] {
            let case = format!("pwrite_u1k/prefill2M/{spot}");
            for counter in ["begin_visits", "commit_visits"] {
                let visits = per_call(&case, variant, counter);
                ensure!(
                    visits == expected,
                    "{case} {variant}: {visits} {counter} per call"
                );
            }
        }
    }
    for (variant, handles) in [("iomap", 0), ("bufferhead", 0), ("base-dirty-inode", 1)] {
        for counter in ["handles", "inode_dirty_calls"] {
            let got = per_call("append/32x1KiB", variant, counter);
            ensure!(got == handles, "{variant}: {got} {counter} per append");
        }
    }
    Ok(())
}

/// Trims save allocations, and change nothing else.
#[test]
fn clears_are_counted_and_timed_with_trims_and_without() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let mut plan = plan(&["iomap", "notrim", "nofronts"], "/nonexistent".into());
    plan.benches = vec![Bench::Randwrite, Bench::Append];
    plan.only = [
        "lock/",
        "clear/",
        "randwrite/",
        "buffered/",
        "fragments/",
        "follow/",
        "append/1x",
    ]
    .map(str::to_owned)
    .to_vec();
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    let about_trims = rows.iter().filter(|r| r["variant"] == "notrim");
    for r in about_trims.clone() {
        ensure!(r["bench"] == "randwrite", "{r}");
    }
    ensure!(about_trims.count() == 22, "{all}");
    for (case, trims) in [("clear/first", "trim_first"), ("clear/last", "trim_last")] {
        let (with, without) = (row(&rows, case, "iomap"), row(&rows, case, "notrim"));
        // All pieces of a region but the one that empties it.
        let calls = counted(with, "calls");
        ensure!(counted(with, trims) == calls - calls / 64, "{with}");
        ensure!(counted(with, "prealloc_allocs") == 0, "{with}");
        let calls = counted(without, "calls");
        ensure!(counted(without, trims) == 0, "{without}");
        ensure!(
            counted(without, "prealloc_allocs") == calls - calls / 64,
            "{without}"
        );
    }
    for case in ["clear/mixed/each", "randwrite/4K/unlock"] {
        for variant in ["iomap", "notrim"] {
            let r = row(&rows, case, variant);
            // Most requests lock their range in a slot, and end without a clear. A few give back
            // what they had no use for, which is timed as well or not.
            let ends = counted(r, "clears") + counted(r, "direct_slots");
            let timed = r["times"]["count"].as_u64().unwrap_or_default();
            ensure!(ends > 0 && timed >= ends, "{r}");
            ensure!(case != "clear/mixed/each" || timed == ends, "{r}");
            let buckets = r["times"]["buckets"].as_array().map_or(0, Vec::len);
            ensure!(buckets == 10, "{r}");
        }
    }
    // Overwrites of whole blocks go to the device directly, each with its range locked once.
    let r = row(&rows, "randwrite/4K", "iomap");
    ensure!(counted(r, "direct_writes") == counted(r, "calls"), "{r}");
    let fill = row(&rows, "randwrite/fill/4K", "notrim");
    ensure!(counted(fill, "calls") == 1024, "{fill}");
    // Every block is delayed when it is written and allocated by its writeback.
    for case in ["buffered/4K/64", "buffered/4K/64/clear"] {
        let r = row(&rows, case, "iomap");
        ensure!(counted(r, "calls") == 1024, "{r}");
        ensure!(counted(r, "delalloc_sets") > 0, "{r}");
        ensure!(counted(r, "delalloc_clears") > 0, "{r}");
        ensure!(counted(r, "ioends") > 0, "{r}");
    }
    fronts_are_cleared(&rows)?;
    for text in [report.text(), report.markdown()] {
        ensure!(text.contains("Percentiles: 90th"), "no histogram");
    }
    Ok(())
}

/// Ranges that are locked or delayed end from their front, as they are done with.
fn fronts_are_cleared(rows: &[Value]) -> Result<()> {
    // A leader unlocks its fronts, each by a trim, or all of its range at its end.
    for (variant, trims) in [("iomap", true), ("nofronts", false)] {
        let r = row(rows, "follow/1M", variant);
        ensure!((counted(r, "trim_last") > 0) == trims, "{r}");
    }
    // Each allocation but the last ends a part of what is delayed.
    let [with, without] = ["iomap", "notrim"].map(|v| row(rows, "fragments/16K", v));
    let trimmed = counted(with, "delalloc_trim_last");
    ensure!(
        trimmed > 0 && trimmed + 1 == counted(with, "delalloc_clears"),
        "{with}"
    );
    ensure!(counted(with, "delalloc_prealloc_allocs") == 0, "{with}");
    ensure!(counted(without, "delalloc_trim_last") == 0, "{without}");
    ensure!(
        counted(without, "delalloc_prealloc_allocs") == trimmed,
        "{without}"
    );
    Ok(())
}

#[test]
fn mounts_are_measured_and_left_clean() -> Result<()> {
    if !need(&[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let mut plan = plan(&["mount", "kernel-ext4"], tools::extant()?);
    plan.only = ["pwrite_u1k", "write/ram/new+sync/64K", "read/ram/1M"]
        .map(str::to_owned)
        .to_vec();
    // Closing a target checks its image.
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    let r = row(&rows, "write/ram/new+sync/64K", "mount");
    ensure!(counted(r, "requests_fsync") == counted(r, "calls"), "{r}");
    ensure!(
        row(&rows, "read/ram/1M", "kernel-ext4")["counters"]["calls"].as_u64() > Some(0),
        "{all}"
    );
    Ok(())
}

/// Each dimension of growth has a figure at each size, and a picture; a page keeps what is not
/// measured.
#[test]
fn growth_has_a_figure_at_each_size() -> Result<()> {
    if !need(&[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let mut plan = plan(&["iomap", "mount", "kernel-ext4"], tools::extant()?);
    plan.benches = vec![Bench::Scale];
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    ensure!(
        report.not_measured().is_empty(),
        "{:?}",
        report.not_measured()
    );
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    for variant in ["iomap", "mount", "kernel-ext4"] {
        for case in [
            "files/create",
            "files/list",
            "files/unlink",
            "extents/write",
            "extents/read",
        ] {
            for size in ["20", "40"] {
                let figure =
                    row(&rows, &format!("scale/{case}/{size}"), variant)["median"].as_f64();
                ensure!(figure > Some(0.0), "{case}: {all}");
            }
        }
        row(&rows, "scale/volume/first-write/1G", variant);
    }
    // Memory is that of a process, and checks have two columns.
    row(&rows, "scale/files/memory/40", "mount");
    let has = |case: &str, v: &str| rows.iter().any(|r| r["case"] == case && r["variant"] == v);
    ensure!(!has("scale/files/memory/40", "kernel-ext4"), "{all}");
    let checked = "scale/volume/check/1G";
    ensure!(
        has(checked, "iomap") && has(checked, "e2fsck") && !has(checked, "mount"),
        "{all}"
    );

    let dir = TempDir::new("page")?;
    extant_bench::plot(&report, dir.path())?;
    let svg = std::fs::read_to_string(dir.join("scale-files-create.svg"))?;
    ensure!(
        svg.contains("less is better") && svg.contains("scale/files/create/40"),
        "{svg}"
    );
    let page = "before\n<!-- measured: begin -->\n<!-- measured: end -->\nafter\n";
    let text = extant_bench::between_marks(page, &report.markdown())?;
    ensure!(
        text.starts_with("before\n") && text.ends_with("after\n"),
        "{text}"
    );
    ensure!(
        text.contains("### What growth costs") && text.contains("at commit"),
        "{text}"
    );
    Ok(())
}

/// A round of the everyday work, and what O_DIRECT means behind a mount.
#[test]
fn a_turn_of_everyday_work_has_every_row() -> Result<()> {
    if !need(&[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let mut plan = plan(&["mount", "kernel-ext4"], tools::extant()?);
    plan.benches = vec![Bench::Peers, Bench::Direct];
    plan.only = [
        "create",
        "untar",
        "walk+read",
        "stream",
        "unmount",
        "direct/",
    ]
    .map(str::to_owned)
    .to_vec();
    // Each round ends with a check of its image.
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    for variant in ["mount", "kernel-ext4"] {
        for case in [
            "create",
            "untar",
            "walk+read/remounted",
            "stream/read/1M",
            "unmount",
        ] {
            let figure = row(&rows, case, variant)["median"].as_f64();
            ensure!(figure > Some(0.0), "{case}: {all}");
        }
    }
    let has = |case: &str| rows.iter().any(|r| r["case"] == case);
    ensure!(
        !has("stat") && !has("requests/create"),
        "not asked for: {all}"
    );
    // Every call is a request of the daemon's, and none of them is answered from a cache.
    for (case, counter) in [
        ("direct/read/4K", "direct_reads"),
        ("direct/write/4K", "direct_writes"),
        ("direct/write/4K/4", "direct_writes"),
    ] {
        let r = row(&rows, case, "mount");
        ensure!(counted(r, "calls") > 0, "{r}");
        ensure!(counted(r, counter) == counted(r, "calls"), "{r}");
    }
    Ok(())
}

/// Seconds that users wait for, once: each mount has its figures, and what a small file costs is
/// counted.
#[test]
fn seconds_at_a_mount_come_with_the_requests_of_a_file() -> Result<()> {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
    if !need(&needs) || !need(&[Need::Tool("git")]) {
        return Ok(());
    }
    let mut plan = plan(&["mount", "kernel-ext4"], tools::extant()?);
    plan.benches = vec![Bench::Mount];
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    for case in ["create+write", "ls -l", "rm", "untar", "git clone"] {
        for variant in ["mount", "kernel-ext4"] {
            let figure = row(&rows, case, variant)["median"].as_f64();
            ensure!(figure > Some(0.0), "{case}: {all}");
        }
        let of = |what: &str, variant: &str| {
            let name = format!("{case}/{what}");
            let found = rows.iter();
            let found = found.filter(|r| r["case"] == name && r["variant"] == variant);
            found.filter_map(|r| r["median"].as_f64()).next()
        };
        ensure!(of("daemon", "mount").is_some(), "{case}: {all}");
        let requests = of("requests", "mount");
        // CREATE and WRITE at least; nothing costs a dozen.
        let bounds = if case == "create+write" {
            2.0..12.0
        } else {
            0.5..20.0
        };
        ensure!(
            requests.is_some_and(|n| bounds.contains(&n)),
            "{case}: {requests:?} requests"
        );
        let linux = of("requests", "kernel-ext4").or(of("daemon", "kernel-ext4"));
        ensure!(linux.is_none(), "Linux has no daemon: {all}");
    }
    Ok(())
}

#[test]
fn unknown_names_are_reported() {
    let wrong = |change: fn(&mut Plan)| {
        let mut plan = plan(&["memcpy"], "/nonexistent".into());
        change(&mut plan);
        extant_bench::run(&plan, &mut |_| {})
            .unwrap_err()
            .to_string()
    };
    assert!(wrong(|p| p.only.push("nothing".into())).contains("write_u1k"));
    assert!(wrong(|p| p.variants.push("nothing".into())).contains("kernel-ext4"));
}

#[test]
fn images_of_each_tree_are_made_by_each_program() -> Result<()> {
    if !need(&[
        Need::Root,
        Need::Loop,
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
    ]) {
        return Ok(());
    }
    let names = ["build", "build-tar", "mke2fs", "kernel-ext4"];
    let mut plan = plan(&names, tools::extant()?);
    plan.benches = vec![Bench::Build];
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    ensure!(
        report.not_measured().is_empty(),
        "{:?}",
        report.not_measured()
    );
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    for shape in ["root", "tree", "flat", "large"] {
        for name in names {
            for call in ["time", "image"] {
                let case = format!("build/{shape}/{call}");
                let figure = row(&rows, &case, name)["median"].as_f64();
                ensure!(figure > Some(0.0), "{case}: {all}");
            }
        }
    }
    Ok(())
}

/// Each feature is measured where it shows, beside a plain volume.
#[test]
fn features_have_a_figure_beside_a_plain_volume() -> Result<()> {
    if !need(&[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let mut plan = plan(
        &["iomap", "mount", "kernel-ext4", "cipher"],
        tools::extant()?,
    );
    plan.benches = vec![Bench::Features];
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    for variant in ["iomap", "mount"] {
        for case in [
            "plain/create",
            "quota/write",
            "casefold/stat",
            "encrypt/unlink",
            "encrypt/write",
            "verity/read",
        ] {
            let figure = row(&rows, case, variant)["median"].as_f64();
            ensure!(figure > Some(0.0), "{case}: {all}");
        }
        let whole = row(&rows, "plain/fsync", variant);
        ensure!(counted(whole, "fast_commits") == 0, "{whole}");
        let fast = row(&rows, "fast_commit/fsync", variant);
        let fsyncs = counted(fast, "calls");
        ensure!(counted(fast, "fast_commits") + 2 > fsyncs, "{fast}");
    }
    let limit = row(&rows, "encrypt/read", "cipher")["median"].as_f64();
    ensure!(limit > Some(0.0), "{all}");
    Ok(())
}
