//! `extant versions`: lists the versions of an image in an object store.

use extant::Timestamp;
use extant_store::{Store, versions};
use serde_json::json;

use crate::args::Versions;
use crate::failure::{Failure, caused};
use crate::output::{Output, size_word, time_word};
use crate::stored;

pub(crate) fn run(args: &Versions) -> Result<(), Failure> {
    let location = stored::location(&args.stored)?;
    let found = Store::open(&location).and_then(|store| versions(&store));
    let found = found.map_err(|error| caused(&args.stored, error))?;
    let mut out = Output::new();
    if args.json {
        let all = found.iter().map(|(number, version)| match version {
            Ok(version) => json!({
                "version": number,
                "manifest": version.manifest.to_string(),
                "bytes": version.bytes,
                "time": version.time,
            }),
            Err(error) => json!({ "version": number, "error": error.to_string() }),
        });
        out.json(&all.collect())?;
    } else {
        for (number, version) in &found {
            let version = match version {
                Ok(version) => version,
                Err(error) => {
                    out.text(format!("@{number}  {error}\n"))?;
                    continue;
                }
            };
            let time = time_word(Timestamp {
                secs: i64::try_from(version.time).unwrap_or(i64::MAX),
                nanos: 0,
            });
            let (size, manifest) = (size_word(version.bytes), version.manifest);
            out.text(format!("@{number}  {size:>8}  {time}  {manifest}\n"))?;
        }
    }
    out.finish()
}
