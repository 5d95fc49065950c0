use std::time::Duration;
use nodepulse::{clock::Clock, event::Event, kernel::{loader, object, ring}};
use agent_common::{DiskEntry, PidSettings};
use nodepulse::units::DeviceNumber;

#[test]
fn smoke() {
    let t = std::time::Instant::now();
    let mut loaded = loader::load(object::embedded().unwrap()).unwrap();
    println!("load {:?}", t.elapsed());
    println!("{:?}", loaded.kernel.support());
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let (tx, mut rx) = tokio::sync::mpsc::channel(1024);
        tokio::spawn(ring::read(loaded.crit, Clock::kernel(), tx.clone()));
        tokio::spawn(ring::read(loaded.bulk, Clock::kernel(), tx));
        loaded.kernel.set_pid_settings(PidSettings { high: 200, low: 100, trend_step: 50, pad: 0 }).unwrap();
        loaded.kernel.watch_disk(DeviceNumber{major:254, minor:0}, DiskEntry::new(1000, 1_000_000_000)).unwrap();
        let mut c = tokio::process::Command::new("sh").arg("-c").arg(r#"
mkdir -p /sys/fs/cgroup/memory/np-smoke/pod/ctr; echo 32M > /sys/fs/cgroup/memory/np-smoke/pod/memory.limit_in_bytes
sh -c 'echo $$ > /sys/fs/cgroup/memory/np-smoke/pod/ctr/cgroup.procs; exec python3 -c "x=bytearray(200<<20)"'
for i in $(seq 1 150); do sleep 1 & done; wait
dd if=/dev/zero of=/tmp/np.dd bs=4k count=300 oflag=direct 2>/dev/null; sleep 1;  dd if=/dev/zero of=/tmp/np.dd bs=4k count=30 oflag=direct 2>/dev/null; rm /tmp/np.dd
rmdir /sys/fs/cgroup/memory/np-smoke/pod/ctr /sys/fs/cgroup/memory/np-smoke/pod /sys/fs/cgroup/memory/np-smoke
"#).spawn().unwrap();
        let _ = tokio::time::timeout(Duration::from_secs(20), c.wait()).await;
        while let Ok(Some(r)) = tokio::time::timeout(Duration::from_millis(500), rx.recv()).await {
            if let Ok(Event::OomKill(k)) = &r.event { println!("KILL lat {:?} {:?} {:?}", r.read.since(k.at), String::from_utf8_lossy(&k.comm), k.names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>()); }
            println!("{:?}", r.event);
        }
        println!("{:?}", loaded.kernel.disk(DeviceNumber{major:254, minor:0}));
        println!("{:?}", loaded.kernel.losses());
    });
}
