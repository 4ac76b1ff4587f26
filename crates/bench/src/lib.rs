//! Measurements and what becomes of them: `extant bench`.
//!
//! Every figure the project states comes out of a command that ends here, with what it is compared
//! to measured in the same run. [`Plan`] says what to run, [`run`] runs it, and the [`Report`]
//! is one JSON, of which `extant-figures` makes tables, pages and pictures.
//!
//! From below: `target` is what is measured (memory, the library, a mount, a device) and times
//! calls on it; `variant` lists what is compared; `case` says what a case is; `overwrite`, `psync`,
//! `append`, `parallel`, `randwrite`, `buffered`, `clears`, `meta`, `small_files`, `direct`,
//! `features` and `queue` have them, with the names that the seeds give them; `runner` runs cases
//! and variants in rounds, there and back again, so that whatever else the machine does falls on
//! all of them. `peers`, `images`, `scale` and `remote` have rounds of their own.
#![forbid(unsafe_code)]

mod append;
mod bed;
mod buffered;
mod case;
mod clears;
mod direct;
mod feature;
mod features;
mod follow;
mod fragments;
mod images;
mod machine;
mod meta;
mod null_data;
mod overwrite;
mod parallel;
mod peak;
mod peers;
mod pinned;
mod plan;
mod psync;
mod queue;
mod randwrite;
mod remote;
mod report;
mod rows;
mod runner;
mod scale;
mod small_files;
mod target;
mod times;
mod trims;
mod variant;
mod variants;

pub use extant_figures::{Report, between_marks};
pub use extant_host::clean_up;
pub use plan::{Bench, Plan, Size};
pub use report::{REPORT_PAGE, plot};
pub use runner::run;
pub use variants::names as variants;
