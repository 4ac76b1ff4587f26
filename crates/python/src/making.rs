//! Whole images: making, building and checking them.

use std::path::PathBuf;

use extant::build::{Options, Source, Watch, build as build_image};
use extant::{CheckOptions, check_image, mkfs as maker};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::failure;

/// How often the progress of a build is told: every so many bytes.
const STEP: u64 = 1 << 20;

/// Makes an empty file system on a file or block device.
#[pyfunction]
#[pyo3(signature = (image, size, label, features, force))]
pub(crate) fn mkfs(
    py: Python<'_>,
    image: PathBuf,
    size: Option<u64>,
    label: &[u8],
    features: &str,
    force: bool,
) -> PyResult<()> {
    let made = py.detach(|| {
        let options = maker::Options {
            label: label.to_vec(),
            features: maker::parse_features(features)?,
            force,
            ..maker::Options::default()
        };
        maker::make(&image, size, &options).map(drop)
    });
    made.map_err(|error| failure::of_mkfs(&image, error))
}

/// Progress and warnings for a caller's function.
#[derive(Default)]
struct Told {
    done: u64,
    all: u64,
    /// The two numbers that were told last.
    told: (u64, u64),
    /// A thread is telling, and goes on as long as there is news.
    is_telling: bool,
    warnings: Vec<String>,
    /// The exception of the caller's function, which is not called again.
    raised: Option<PyErr>,
}

/// Passes progress on to a caller's function.
struct Progress {
    call: Option<Py<PyAny>>,
    /// Bytes between two calls, at least.
    step: u64,
    told: Mutex<Told>,
}

impl Told {
    fn is_due(&self, step: u64) -> bool {
        let all_is_done = self.done >= self.all && (self.done, self.all) != self.told;
        self.raised.is_none() && (all_is_done || self.done >= self.told.0 + step)
    }
}

impl Progress {
    /// Tells what is done, if it is time, for every thread one after the other: what a function of
    /// Python does may take long, and the numbers must not go back.
    fn tell(&self) {
        let Some(call) = &self.call else { return };
        let mut told = self.told.lock();
        if told.is_telling {
            return;
        }
        told.is_telling = true;
        while told.is_due(self.step) {
            let now = (told.done, told.all);
            told.told = now;
            drop(told);
            let called = Python::attach(|py| call.call1(py, now).map(drop));
            told = self.told.lock();
            told.raised = called.err();
        }
        told.is_telling = false;
    }
}

impl Watch for Progress {
    fn expect(&self, bytes: u64) {
        self.told.lock().all += bytes;
    }

    fn copied(&self, bytes: u64) {
        self.told.lock().done += bytes;
        self.tell();
    }

    fn warn(&self, what: String) {
        self.told.lock().warnings.push(what);
    }

    fn goes_on(&self) -> bool {
        self.told.lock().raised.is_none()
    }
}

/// Builds an image of folders, archives and container images. Returns its bytes and warnings.
#[pyfunction]
#[pyo3(signature = (sources, image, size, free, owner, mtime, force, progress))]
#[allow(
    clippy::too_many_arguments,
    reason = "the arguments of the function in Python, by name there"
)]
pub(crate) fn build(
    py: Python<'_>,
    sources: Vec<PathBuf>,
    image: PathBuf,
    size: Option<u64>,
    free: u64,
    owner: Option<(u32, u32)>,
    mtime: Option<i64>,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, Vec<String>)> {
    let mut options = Options {
        size,
        free,
        uid: owner.map(|(uid, _)| uid),
        gid: owner.map(|(_, gid)| gid),
        ..Options::default()
    };
    options.volume.force = force;
    if let Some(secs) = mtime {
        options.mtime = Some(extant::build::Timestamp { secs, nanos: 0 });
    }
    let sources: Vec<Source> = sources.into_iter().map(Source::Path).collect();
    let watch = Progress {
        call: progress,
        step: STEP,
        told: Mutex::default(),
    };
    let built = py.detach(|| build_image(&sources, &image, &options, &watch));
    let told = watch.told.into_inner();
    if let Some(error) = told.raised {
        return Err(error);
    }
    let built = built.map_err(|error| failure::of_build(&image, error))?;
    Ok((built.layout.bytes(), told.warnings))
}

/// Refuses a file of the host that is in use, before it is written or replaced.
#[pyfunction]
pub(crate) fn refuse_in_use(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let refused = py.detach(|| extant::device::refuse_in_use(&path));
    refused.map_err(|error| failure::at(&path, &error.into()))
}

/// Verifies an image without writing to it. Returns the number of findings, and the first of them,
/// each in words and by the name of its kind.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    image: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, Vec<(String, String)>)> {
    let watch = Progress {
        call: progress,
        // The check itself chooses its calls.
        step: 1,
        told: Mutex::default(),
    };
    let report = py.detach(|| {
        let tell = |done, all| {
            let mut told = watch.told.lock();
            told.done = told.done.max(done);
            told.all = all;
            drop(told);
            watch.tell();
        };
        let options = CheckOptions {
            progress: Some(&tell),
            ..CheckOptions::default()
        };
        check_image(&image, &options)
    });
    let report = report.map_err(|error| failure::at(&image, &error))?;
    match watch.told.into_inner().raised {
        Some(error) => Err(error),
        None => {
            let findings = report.findings.iter();
            let told = findings.map(|finding| (finding.to_string(), finding.kind.name()));
            Ok((report.found, told.collect()))
        }
    }
}
