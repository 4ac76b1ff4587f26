//! Measurements and what becomes of them: `extant bench` and the side-by-side run.
//!
//! Every figure the project states comes out of a command that ends here, with what it is compared
//! to measured in the same run. [`Plan`] says what to run, [`run`] runs it, [`Report`] is shown as a table, as
//! Markdown, as JSON, and as plots.
//!
//! From below: `place` is where the files of a variant are (memory, the library, a mount) and times calls on them; `variant`
//! lists what is compared; `case` says what a case is; `overwrite`, `psync`, `append`, `parallel`,
//! `randwrite`, `clears` and `meta` have them, with the names that the seeds give them; `runner`
//! runs cases and variants in turns, there and back again, so that whatever else the machine does
//! falls on all of them.
#![forbid(unsafe_code)]

mod append;
mod case;
mod clears;
pub mod machine;
mod meta;
mod null_data;
mod overwrite;
mod parallel;
mod pinned;
mod place;
mod plan;
mod plot;
mod psync;
mod randwrite;
mod report;
pub mod rows;
mod runner;
mod times;
mod variant;

pub use plan::{Bench, Plan};
pub use report::Report;
pub use runner::run;
pub use variant::names as variants;
