//! Builds an image of folders and archives: `build_image SOURCE... IMAGE`.

use std::path::PathBuf;

use extant_build::{Options, Silent, Source, build};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let image = paths.pop().ok_or("usage: build_image SOURCE... IMAGE")?;
    let sources: Vec<Source> = paths.into_iter().map(Source::Path).collect();
    let built = build(&sources, &image, &Options::default(), &Silent)?;
    println!("{} bytes, {} inodes", built.layout.bytes(), built.entries);
    Ok(())
}
