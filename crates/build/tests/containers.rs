//! Volumes built of compressed archives, of layers and container images, with manifests.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{build, expect_equal, fill};
use extant_build::Options;
use extant_testkit::{Cmd, Need, TempDir, need};

const MOUNTED: &[Need] = &[
    Need::Loop,
    Need::Tool("e2fsck"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
    Need::Tool("python3"),
];

fn shell(dir: &Path, script: &str) {
    let script = format!("set -e\n{script}");
    Cmd::new("sh").args(["-c", &script]).dir(dir).ok().unwrap();
}

/// Two layers, the second with whiteouts, and what they are together.
fn layers(dir: &Path) -> [PathBuf; 2] {
    shell(
        dir,
        "mkdir -p one/gone one/opaque/old one/kept one/usr/lib; cd one
        echo a > file; echo b > gone/f; echo c > opaque/f; echo d > opaque/old/f; echo e > kept/f
        echo f > .wh.own; ln -s usr/lib lib; cd ..
        mkdir -p two/opaque/new two/kept two/lib; cd two
        touch .wh.gone .wh.none opaque/.wh..wh..opq kept/.wh.f .wh..wh.plnk
        echo new > opaque/new/f; echo new > file; mkdir lib/real; cd ..
        mkdir -p right/opaque/new right/kept right/usr/lib right/lib/real right/lost+found; cd right
        echo new > file; echo new > opaque/new/f; cd ..
        find one two right | xargs touch -h -d @1700000000
        mkdir -p over; cp -a right/. over; rm -r over/lib; ln -s usr/lib over/lib
        mkdir over/usr/lib/real
        find over | xargs touch -h -d @1700000000
        tar -C one -cf one.tar .; tar -C two -cf two.tar .",
    );
    [dir.join("one.tar"), dir.join("two.tar")]
}

/// The same layers as container images: as a layout, and as docker save and skopeo write them.
fn containers(dir: &Path) {
    shell(
        dir,
        r#"mkdir -p oci/blobs/sha256; gzip -c one.tar > oci/blobs/sha256/1
        cp two.tar oci/blobs/sha256/2; echo '{"imageLayoutVersion":"1.0.0"}' > oci/oci-layout
        echo '{"layers":[{"digest":"sha256:1"},{"digest":"sha256:2"}]}' > oci/blobs/sha256/3
        echo '{"layers":[{"digest":"sha256:../../../one"}]}' > oci/blobs/sha256/4
        cat > oci/index.json <<END
        {"manifests":[{"digest":"sha256:3","platform":{"os":"linux","architecture":"amd64"},
          "annotations":{"org.opencontainers.image.ref.name":"good"}},
         {"digest":"sha256:4","annotations":{"org.opencontainers.image.ref.name":"bad"}}]}
END
        tar -C oci -cf oci.tar blobs index.json oci-layout
        tar -C oci -cf dot.tar .
        mkdir -p docker/x; cp one.tar docker/x/layer.tar; gzip -c two.tar > docker/y.tar
        echo '[{"RepoTags":["a:b"],"Layers":["x/layer.tar","y.tar"]}]' > docker/manifest.json
        tar -C docker -cf docker.tar manifest.json x/layer.tar y.tar; gzip docker.tar
        mkdir skopeo; sum() { sha256sum $1 | cut -d ' ' -f 1; }
        a=$(sum one.tar).tar; b=$(sum two.tar).tar; cp one.tar skopeo/$a; cp two.tar skopeo/$b
        ln -s ../$a skopeo/linked.tar; mkdir skopeo/old; ln -s ../$b skopeo/old/layer.tar
        echo '{"os":"linux","architecture":"amd64"}' > skopeo/config.json
        printf '[{"Config":"config.json","RepoTags":["a:b"],"Layers":["%s","%s"]}]' \
            $a old/layer.tar > skopeo/manifest.json
        tar -C skopeo -cf skopeo.tar $a $b old config.json manifest.json"#,
    );
}

#[test]
fn later_layers_remove_what_earlier_ones_have() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let [one, two] = layers(dir.path());
    let image = dir.join("image");
    // As sources of their own: a link to a directory stays one.
    build(&[&one, &two], &image, &Options::default()).unwrap();
    expect_equal(&image, &dir.join("over"));
    containers(dir.path());
    let named = |name: &str| Options {
        image: Some(name.to_owned()),
        ..Options::default()
    };
    fs::remove_file(&image).unwrap();
    build(&[&dir.join("oci")], &image, &named("good")).unwrap();
    expect_equal(&image, &dir.join("right"));
    let again = dir.join("again");
    for (source, name) in [
        ("oci.tar", "good"),
        ("dot.tar", "good"),
        ("docker.tar.gz", "a:b"),
        ("docker", "a:b"),
        ("skopeo.tar", "a:b"),
    ] {
        build(&[&dir.join(source)], &again, &named(name)).unwrap();
        assert!(
            fs::read(&image).unwrap() == fs::read(&again).unwrap(),
            "{source}"
        );
        fs::remove_file(&again).unwrap();
    }
    for (source, name, what) in [
        ("oci", "bad", "\"sha256:../../../one\" is no digest"),
        ("oci", "other", "none of its images fit"),
        (
            "docker.tar.gz",
            "c",
            "0 of its images fit: choose one by name or platform: a:b",
        ),
    ] {
        let said = build(&[&dir.join(source)], &again, &named(name)).unwrap_err();
        assert!(said.to_string().contains(what), "{said}");
        assert!(!again.exists());
    }
}

#[test]
fn what_is_asked_for_and_is_not_there_is_an_error() {
    let dir = TempDir::new("build").unwrap();
    shell(
        dir.path(),
        r#"mkdir -p root oci/blobs/sha256 web; tar -C root -cf oci/blobs/sha256/1 .
        echo '{"imageLayoutVersion":"1.0.0"}' > oci/oci-layout
        echo '{"os":"linux","architecture":"amd64"}' > oci/blobs/sha256/2
        echo '{"config":{"digest":"sha256:2"},"layers":[{"digest":"sha256:1"}]}' \
            > oci/blobs/sha256/3
        echo '{"manifests":[{"digest":"sha256:3"}]}' > oci/blobs/sha256/4
        echo '{"manifests":[{"digest":"sha256:4"}]}' > oci/index.json
        mkdir docker; cp oci/blobs/sha256/1 docker/layer; cp oci/blobs/sha256/2 docker/config
        echo '[{"Config":"config","RepoTags":null,"Layers":["layer"]}]' > docker/manifest.json
        tar -C docker -cf docker.tar layer config manifest.json
        echo '{"name":"web"}' > web/manifest.json; echo '[1]' > web/index.json
        tar -C web -cf web.tar ."#,
    );
    let image = dir.join("image");
    let of = |platform: &str| Options {
        platform: Some(platform.to_owned()),
        ..Options::default()
    };
    for source in ["oci", "docker.tar", "docker"] {
        build(&[&dir.join(source)], &image, &of("linux/amd64")).unwrap();
        fs::remove_file(&image).unwrap();
        let said = build(&[&dir.join(source)], &image, &of("linux/arm64")).unwrap_err();
        let said = said.to_string();
        assert!(
            said.contains("of its images fit") && said.contains("linux/amd64"),
            "{said}"
        );
        assert!(!image.exists());
    }
    // What only has such a file is a folder, an archive.
    for source in ["web", "web.tar"] {
        let said = build(&[&dir.join(source)], &image, &of("linux/amd64")).unwrap_err();
        assert!(said.to_string().contains("no source is one"), "{said}");
        build(&[&dir.join(source)], &image, &Options::default()).unwrap();
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn lists_of_images_are_bounded() {
    let dir = TempDir::new("build").unwrap();
    shell(
        dir.path(),
        "mkdir -p oci/blobs/sha256 docker; echo {} > oci/oci-layout",
    );
    let image = dir.join("image");
    let said = |source: &str, name: &str, text: &str| {
        fs::write(dir.join(source).join(name), text).unwrap();
        let options = Options {
            platform: Some("linux/amd64".to_owned()),
            ..Options::default()
        };
        let failed = build(&[&dir.join(source)], &image, &options).unwrap_err();
        failed.to_string()
    };
    let index =
        |count: usize, one: &str| format!("{{\"manifests\":[{}]}}", vec![one; count].join(","));
    let arm = r#"{"digest":"sha256:1","platform":{"os":"linux","architecture":"arm64"}}"#;
    let listed = said("oci", "index.json", &index(30, arm));
    assert!(listed.contains("none of its images fit"), "{listed}");
    assert_eq!(listed.matches("linux/arm64").count(), 20, "{listed}");
    assert!(listed.ends_with(" and 10 more"), "{listed}");
    let many = said("oci", "index.json", &index(4097, arm));
    assert!(many.contains("a list of 4097 images"), "{many}");
    let saved = vec![r#"{"RepoTags":["a"],"Layers":[]}"#; 4097].join(",");
    let many = said("docker", "manifest.json", &format!("[{saved}]"));
    assert!(many.contains("a list of 4097 images"), "{many}");
    // Long descriptions, each of them another one by its name.
    let blobs = dir.join("oci/blobs/sha256");
    let long = format!("{{}}{}", " ".repeat(15 << 20));
    fs::write(blobs.join("0"), long).unwrap();
    for number in 1..20 {
        fs::hard_link(blobs.join("0"), blobs.join(number.to_string())).unwrap();
    }
    let one = |number| format!("{{\"digest\":\"sha256:{number}\"}}");
    let same = said("oci", "index.json", &index(20, &one(0)));
    assert!(same.contains("none of its images fit"), "{same}");
    let others: Vec<String> = (0..20).map(one).collect();
    let many = format!("{{\"manifests\":[{}]}}", others.join(","));
    let many = said("oci", "index.json", &many);
    assert!(many.contains("too long, all together"), "{many}");
}

#[test]
fn links_and_pipes_of_a_layout_are_not_followed() {
    let dir = TempDir::new("build").unwrap();
    shell(
        dir.path(),
        r#"mkdir -p root oci/blobs/sha256 oci/blobs/real; tar -C root -cf layer .
        echo '{"imageLayoutVersion":"1.0.0"}' > oci/oci-layout
        manifest() { echo '{"layers":[{"digest":"sha256:'$1'"}]}' > oci/blobs/sha256/$1$1; }
        for name in 1 2 3 4; do manifest $name; done
        ln -s ../../../layer oci/blobs/sha256/1; mkfifo oci/blobs/sha256/2
        mkdir oci/blobs/sha256/3; cp layer oci/blobs/sha256/4; ln -s real oci/blobs/linked
        cp layer oci/blobs/real/5
        echo '{"layers":[{"digest":"linked:5"}]}' > oci/blobs/sha256/55"#,
    );
    let index = dir.join("oci/index.json");
    let image = dir.join("image");
    let built = |name: &str| {
        let text = format!(r#"{{"manifests":[{{"digest":"sha256:{name}"}}]}}"#);
        fs::write(&index, text).unwrap();
        let built = build(&[&dir.join("oci")], &image, &Options::default());
        built.map_err(|error| error.to_string())
    };
    built("44").unwrap();
    fs::remove_file(dir.join("image")).unwrap();
    for (name, what) in [
        ("11", "symbolic links"),
        ("22", "not a file"),
        ("33", "not a file"),
        ("55", "Not a directory"),
    ] {
        let said = built(name).unwrap_err();
        assert!(said.contains(what), "{name}: {said}");
    }
}

#[test]
fn compressed_archives_give_the_same_bytes() {
    if !need(MOUNTED) || !need(&[Need::Tool("zstd"), Need::Tool("xz")]) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    fill(&dir.join("folder"));
    shell(
        dir.path(),
        "tar -C folder --format=pax --sparse -cf plain .; gzip -c plain > gzip
        head -c 1000000 plain > a; tail -c +1000001 plain > b; xz -c plain > xz
        zstd -q -c a > zstd; printf 'P*M\\030\\003\\000\\000\\000abc' >> zstd; zstd -q -c b >> zstd
        head -c 100000 gzip > cut; head -c 50000000 /dev/zero | gzip > bomb",
    );
    let (plain, image) = (dir.join("plain.img"), dir.join("image"));
    build(&[&dir.join("plain")], &plain, &Options::default()).unwrap();
    let right = fs::read(&plain).unwrap();
    for packed in ["gzip", "zstd", "xz"] {
        build(&[&dir.join(packed)], &image, &Options::default()).unwrap();
        assert!(right == fs::read(&image).unwrap(), "{packed}");
        fs::remove_file(&image).unwrap();
    }
    let before = fs::read_dir(dir.path()).unwrap().count();
    let limit = Options {
        limit: Some(40 << 20),
        ..Options::default()
    };
    for (source, what) in [
        ("cut", "it cannot be unpacked"),
        ("bomb", "it unpacks to more than 41943040 bytes"),
    ] {
        let said = build(&[&dir.join(source)], &image, &limit).unwrap_err();
        assert!(said.to_string().contains(what), "{said}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before);
}

#[test]
fn a_manifest_changes_attributes_and_adds_nodes() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    shell(
        dir.path(),
        "mkdir -p folder/etc right/etc right/dev right/lost+found; echo host > hosts
        echo s > folder/etc/shadow; chmod 644 folder/etc/shadow
        setfattr -n user.old -v 1 folder/etc/shadow; setfattr -n user.new -v 1 folder/etc/shadow
        cp -a folder/etc/shadow right/etc; cd right; setfattr -n user.new -v 'a b' etc/shadow
        chmod 640 etc/shadow; chown 5:42 etc/shadow; cp ../hosts etc/hosts; chown 5:6 etc/hosts
        mknod dev/console c 5 1; chmod 600 dev/console; chown 5:6 dev/console dev
        ln -s 'a b' etc/link; chown -h 5:6 etc/link; mkfifo dev/fifo; chown 5:6 dev/fifo
        chmod 755 dev etc ../folder/etc; chmod 644 dev/fifo etc/hosts
        touch -h -d @7 dev/* etc/hosts etc/link; touch -d '1969-12-31 23:59:58.5 UTC' dev
        cd ../folder/etc; truncate -s 1M old; echo x >> old; ln old again; ln -s old to
        mknod node c 1 2; touch acl; setfacl -m u:9:rwx acl; touch -h -d @8 *
        cp -a old again to node acl ../../right/etc; cd ../../right/etc
        rm old again to node; cp ../../hosts old; ln old again; ln -s new to; mknod node c 3 4
        chmod 644 old node; setfacl -m m:r acl; chmod u=rw,o=x acl; touch -h -d @8 old to node acl
        cd ..; chown -h 0:0 etc/old etc/to etc/node etc/acl
        touch -d @100 . etc etc/shadow ../folder ../folder/etc ../folder/etc/shadow",
    );
    let hosts = dir.join("hosts");
    let text = format!(
        "# a comment\n/set uid=5 gid=6 time=7\n\
         ./etc/shadow uid=5 gid=42 mode=0640 xattr.user.new=a\\040b time=100\n\
         dev type=dir mode=755 time=-1.5\n\
         dev/console type=char mode=600 device=linux,5,1 # the console\n\
         dev/fifo type=fifo\n/etc/link type=link link=a\\040b\n\
         etc/hosts type=file contents={0} size=5\n/unset uid gid time\n\
         etc/old contents={0}\netc/to link=new\netc/node type=char device=3,4\n\
         etc/acl mode=0641\n",
        hosts.display()
    );
    let manifest = dir.join("manifest");
    fs::write(&manifest, text).unwrap();
    let image = dir.join("image");
    let options = Options {
        manifest: Some(manifest.clone()),
        ..Options::default()
    };
    build(&[&dir.join("folder")], &image, &options).unwrap();
    expect_equal(&image, &dir.join("right"));
    fs::remove_file(&image).unwrap();
    for (line, what) in [
        ("none uid=1", "the path is not there: type= adds it"),
        ("etc type=file", "the path is there, and of another type"),
        ("etc colour=red", "\"colour\" is not known"),
        ("etc mode=9", "mode: \"9\""),
        ("x type=char", "device=MAJOR,MINOR is missing"),
        ("x type=link", "link= is missing"),
        ("x type=char device=1", "device= is MAJOR,MINOR"),
        ("etc contents=/etc/passwd", "contents= is of another type"),
        ("etc/shadow link=x", "link= is of another type"),
        ("etc/shadow contents=/dev/null", "contents= is not a file"),
        ("etc time=5.x", "time: \"5.x\""),
        ("../x type=file", "a name with \"..\" in it"),
        ("etc uid=4294967295", "uid: \"4294967295\""),
    ] {
        fs::write(&manifest, format!("\n{line}\n")).unwrap();
        let said = build(&[&dir.join("folder")], &image, &options).unwrap_err();
        assert!(said.to_string().contains(what), "{said} instead of {what}");
        assert!(!image.exists());
    }
}

#[test]
fn an_order_lays_the_first_files_first() {
    let dir = TempDir::new("build").unwrap();
    shell(
        dir.path(),
        "mkdir folder; for name in a b c d; do head -c 9000 /dev/urandom > folder/$name; done
        printf '/d\\nb\\nnone\\n' > order",
    );
    let image = dir.join("image");
    let options = Options {
        order: Some(dir.join("order")),
        ..Options::default()
    };
    build(&[&dir.join("folder")], &image, &options).unwrap();
    let bytes = fs::read(&image).unwrap();
    let place = |name: &str| {
        let content = fs::read(dir.join("folder").join(name)).unwrap();
        bytes
            .windows(64)
            .position(|at| at == &content[..64])
            .unwrap()
    };
    let places = ["d", "b", "a", "c"].map(place);
    assert!(places.is_sorted(), "{places:?}");
}
