//! An image in memory, or anything else that is a device, used by several threads at once.
//!
//! ```sh
//! extant mkfs -q disk.img 64M
//! cargo run --example threads -- disk.img
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use extant::Filesystem;
use extant::device::MemoryDevice;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: threads IMAGE")?;
    threads(image.as_ref())
}

pub(crate) fn threads(image: &Path) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image)?));
    let fs = Filesystem::options()
        .write(true)
        .open_device(device.clone())?;

    // One file, four writers of parts that do not overlap: they do not wait for each other.
    let file = fs.create("/parallel")?;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u8)
            .map(|n| {
                let file = &file;
                scope.spawn(move || file.write_at(&[n; 1 << 20], u64::from(n) << 20))
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap_or(Err(extant::Error::Invalid)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    file.sync_all()?;
    drop(file);
    println!("{} bytes", fs.metadata("/parallel")?.len());
    fs.unmount()?;

    // The device holds a whole, clean image now.
    let report = extant::check(device, &extant::CheckOptions::default())?;
    println!("clean: {}", report.is_clean());
    Ok(())
}
