//! A file system that is measured as it grows: the library or a mount, on an image in RAM.

use extant::Tuning;
use extant_blockdev::{FileIo, FileQueues};
use extant_host::{Error, Image, Result};

use crate::bed::TestBed;
use crate::peak::Peak;
use crate::plan::Plan;
use crate::target::{Engine, Fresh, Host, Medium};
use crate::variant::{Kind, MKE2FS, Variant};

/// A file system that can be opened.
pub(super) enum Closed {
    Library(Box<Tuning>, Image),
    Host(Fresh),
}

/// An open file system, and the memory of what serves it.
pub(super) struct Opened {
    pub(super) bed: TestBed,
    /// `None` where that is the kernel's.
    pub(super) memory: Option<Peak>,
}

impl Closed {
    /// A new file system.
    pub(super) fn make(variant: &Variant, plan: &Plan, medium: &Medium) -> Result<Closed> {
        if let Some(driver) = variant.driver(plan) {
            return Ok(Closed::Host(Fresh::make(driver, medium)?));
        }
        let Kind::Library(tune) = variant.kind else {
            return Err(Error::new(format!("{} does not grow", variant.name)));
        };
        let mut tuning = Tuning::default();
        tune(&mut tuning);
        Ok(Closed::Library(Box::new(tuning), medium.image()?))
    }

    /// Opens it.
    pub(super) fn open(self) -> Result<Opened> {
        match self {
            Closed::Library(tuning, image) => {
                let memory = Peak::of_this_process();
                let io = FileIo {
                    direct: false,
                    queues: FileQueues::Auto,
                };
                let engine = Engine::over_file(image, *tuning, io)?;
                Ok(Opened {
                    bed: TestBed::new(Box::new(engine)),
                    memory,
                })
            }
            Closed::Host(fresh) => {
                let host = Host::over(fresh)?;
                let memory = host.mount().pid().map(Peak::of_process).transpose()?;
                Ok(Opened {
                    bed: TestBed::new(Box::new(host)),
                    memory,
                })
            }
        }
    }
}

/// An image in RAM.
pub(super) fn medium(mib: u64, args: &str) -> Medium {
    Medium {
        mib,
        args: format!("{MKE2FS} {args}"),
        dir: None,
        past_cache: false,
        // Lazy initialisation of inode tables would write whatever a sparse volume leaves out.
        linux_options: "noinit_itable",
        feature: None,
    }
}
