//! `extant stats`: the counters of a live mount.

use serde_json::{Map, Value};

use crate::args::Stats;
use crate::failure::{At, Failure};
use crate::output::Output;

mod watch;

pub(crate) fn run(args: &Stats) -> Result<(), Failure> {
    if let Some(seconds) = args.watch {
        return watch::run(args, seconds);
    }
    let counters = extant_fuse::stats(&args.dir).at(args.dir.display())?;
    let mut out = Output::new();
    if args.json {
        let map: Map<String, Value> = counters
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .collect();
        out.json(&Value::Object(map))?;
    } else {
        let width = counters.iter().map(|(name, _)| name.len()).max();
        for (name, value) in &counters {
            out.text(format!("{name:<0$}  {value}\n", width.unwrap_or(0)))?;
        }
    }
    out.finish()
}
