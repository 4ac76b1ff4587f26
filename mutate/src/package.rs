//! The package whose source is changed, and its test binaries.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::options::Options;
use crate::rewrite::Source;
use crate::sites;

/// Rounds of leaving out what does not compile.
const ROUNDS: usize = 25;

/// The module that is added.
const SWITCH: &str = "mutant_switch.rs";

/// A part of each change. Changes of changed text would be wrong, and their errors no site's.
const SWITCHED: &str = "crate::mutant_switch::pick(";

/// A test binary.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) program: PathBuf,
    /// The folder in which cargo runs it.
    pub(crate) dir: PathBuf,
}

/// The files that are changed, with their sites numbered from 0.
pub(crate) fn sources(options: &Options) -> Result<Vec<Source>, String> {
    let mut files = Vec::new();
    for folder in options.files.split(',') {
        list(&options.root.join(folder), &mut files)?;
    }
    files.sort();
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for file in files {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| told(&error))?;
        if text.contains(SWITCHED) {
            return Err(told(&"it has changes already; bring the copy up to date"));
        }
        let found = sites::find(&text).map_err(|error| told(&error))?;
        let is_root = ["lib.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
        let beside = if is_root {
            file.with_file_name("")
        } else {
            file.with_extension("")
        };
        left_out.extend(found.left_out.iter().map(|name| beside.join(name)));
        all.push((file, text, found.sites));
    }
    let is_left_out = |file: &Path| {
        let mut both = left_out.iter();
        both.any(|module| file.starts_with(module) || file == module.with_extension("rs"))
    };
    all.retain(|(file, _, sites)| !sites.is_empty() && !is_left_out(file));
    let mut next = 0;
    let sources = all.into_iter().map(|(file, text, sites)| {
        let path = file.strip_prefix(&options.root).unwrap_or(&file);
        let numbers = sites.iter().map(|site| {
            let first = next;
            next += u32::try_from(site.names.len()).unwrap_or(0);
            first
        });
        Source {
            path: path.display().to_string(),
            numbers: numbers.collect(),
            text,
            sites,
            dropped: Default::default(),
        }
    });
    Ok(sources.collect())
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with(SWITCH) {
            files.push(path);
        }
    }
    Ok(())
}

/// Writes the changed sources, leaves out what does not compile, and returns the test binaries.
pub(crate) fn build(options: &Options, sources: &mut [Source]) -> Result<Vec<Binary>, String> {
    for round in 1..=ROUNDS {
        for source in sources.iter() {
            write(&options.root.join(&source.path), &source.rewritten().0)?;
        }
        let built = cargo(options)?;
        if built.errors.is_empty() {
            return Ok(built.binaries);
        }
        let (errors, mut dropped) = (built.errors.len(), 0);
        for (path, bytes) in built.errors {
            let source = sources.iter_mut().find(|source| source.path == path);
            let source = source.ok_or_else(|| format!("{path} does not compile"))?;
            for site in source.blamed(&bytes) {
                dropped += usize::from(source.dropped.insert(site));
            }
        }
        println!("mutate: build {round}: {errors} errors, {dropped} sites less");
        if dropped == 0 {
            return Err("errors outside of all changes".to_owned());
        }
    }
    Err(format!("it does not compile after {ROUNDS} rounds"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Adds the module that chooses to the package, before its sources are read.
pub(crate) fn add_switch(options: &Options) -> Result<(), String> {
    let (package, _) = options
        .files
        .split_once("/src")
        .ok_or("--files: no folder src")?;
    let dir = options.root.join(package).join("src");
    write(&dir.join(SWITCH), include_str!("switch.rs"))?;
    let lib = dir.join("lib.rs");
    let text = std::fs::read_to_string(&lib).map_err(|error| error.to_string())?;
    let module = "\nmod mutant_switch;\n";
    if text.contains(module) {
        Ok(())
    } else {
        write(&lib, &(text + module))
    }
}

/// The outcome of a build.
#[derive(Default)]
struct Built {
    binaries: Vec<Binary>,
    /// Files with the bytes of an error.
    errors: Vec<(String, Range<usize>)>,
}

/// Builds the suites of the package, and then those of each other one that `-p` names.
fn cargo(options: &Options) -> Result<Built, String> {
    let mut all = Built::default();
    let mut package = options.package.as_str();
    for (nth, suites) in options.suites.split(|word| word == "-p").enumerate() {
        let mut suites = suites;
        if nth > 0 {
            let named = suites.split_first().ok_or("-p: no package")?;
            (package, suites) = (named.0, named.1);
        }
        let built = cargo_test(options, package, suites)?;
        all.binaries.extend(built.binaries);
        all.errors = built.errors;
        if !all.errors.is_empty() {
            break;
        }
    }
    Ok(all)
}

fn cargo_test(options: &Options, package: &str, suites: &[String]) -> Result<Built, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = Command::new(cargo);
    command.args([
        "test",
        "--no-run",
        "--message-format=json",
        "-q",
        "-p",
        package,
    ]);
    command.args(suites).current_dir(&options.root);
    // Changes have warnings, and lints that are errors would leave them out.
    command.env("RUSTFLAGS", format!("{flags} --cap-lints=allow").trim());
    command
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_DIR", &options.built);
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    let mut built = Built::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        built.take(&value);
    }
    built
        .errors
        .sort_by_key(|(path, bytes)| (path.clone(), bytes.start, bytes.end));
    built.errors.dedup();
    if !output.status.success() && built.errors.is_empty() {
        return Err(format!("cargo: {}", output.status));
    }
    Ok(built)
}

impl Built {
    fn take(&mut self, line: &Value) {
        let manifest = line["manifest_path"].as_str().unwrap_or_default();
        let dir = Path::new(manifest).parent().unwrap_or(Path::new(""));
        if let (Some(program), Some(true)) = (
            line["executable"].as_str(),
            line["profile"]["test"].as_bool(),
        ) {
            let (program, dir) = (program.into(), dir.to_owned());
            self.binaries.push(Binary { program, dir });
        }
        let message = &line["message"];
        if message["level"] != "error" {
            return;
        }
        let spans = message["spans"].as_array().into_iter().flatten();
        for span in spans.filter(|span| span["is_primary"] == true) {
            let byte = |name: &str| usize::try_from(span[name].as_u64().unwrap_or(0)).unwrap_or(0);
            let path = span["file_name"].as_str().unwrap_or_default().to_owned();
            self.errors
                .push((path, byte("byte_start")..byte("byte_end")));
        }
    }
}
