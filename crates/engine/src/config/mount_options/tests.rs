use super::*;

fn refusal(list: &str) -> String {
    MountOptions::parse(list).unwrap_err().to_string()
}

#[test]
fn a_list_is_applied_in_order() {
    let o = MountOptions::parse("noatime, ro,rw,commit=30,,barrier=0,errors=continue,resuid=7")
        .unwrap();
    assert!(!o.read_only() && !o.barrier());
    assert_eq!(o.commit(), Duration::from_secs(30));
    assert_eq!(o.errors(), ErrorsPolicy::Continue);
    assert_eq!((o.resuid(), o.atime()), (7, AtimeMode::Noatime));
    assert_eq!(
        MountOptions::parse("commit=0").unwrap().commit(),
        Duration::from_secs(5)
    );
}

#[test]
fn refusals_name_the_option_and_the_reason() {
    assert_eq!(
        refusal("ro,frobnicate"),
        "mount option 'frobnicate': unknown"
    );
    assert_eq!(
        refusal("errors=maybe"),
        "mount option 'errors=maybe': knows continue, remount-ro, panic"
    );
    assert_eq!(refusal("commit"), "mount option 'commit': needs a value");
    assert_eq!(refusal("ro=1"), "mount option 'ro=1': takes no value");
    assert_eq!(
        refusal("commit=-1"),
        "mount option 'commit=-1': needs a number from 0 to 4294967295"
    );
    assert_eq!(
        refusal("usrjquota=a.user"),
        "mount option 'usrjquota=a.user': quotas in files with names are not supported (mke2fs -O \
         quota makes others)"
    );
}

#[test]
fn every_option_is_documented() {
    let page = include_str!("../../../../../docs/COMPATIBILITY.md");
    for name in option_table::names() {
        let found = [format!("`{name}`"), format!("`{name}=")];
        assert!(
            found.iter().any(|text| page.contains(text)),
            "{name} is missing"
        );
        assert!(MountOptions::is_known(name));
    }
}

#[test]
fn the_backend_is_one_of_three() {
    let backend = |list| MountOptions::parse(list).unwrap().backend();
    assert_eq!(backend(""), Backend::Auto);
    assert_eq!(backend("backend=io_uring"), Backend::IoUring);
    assert_eq!(
        backend("backend=io_uring,backend=syscalls"),
        Backend::Syscalls
    );
    assert_eq!(
        refusal("backend=spdk"),
        "mount option 'backend=spdk': knows auto, syscalls, io_uring"
    );
}
