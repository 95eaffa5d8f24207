//! Processes that share a device, the log of what it did, and how its threads treat the machine.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const ROLE: &str = "SOFTCUDA_TEST_ROLE";
const PLACE: &str = "SOFTCUDA_TEST_PLACE";

/// A directory for the files of a test.
fn new_place(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// The directory that this process was given, if it is one of a test's.
fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, PathBuf::from(std::env::var_os(PLACE)?)))
}

/// A process that plays a role in a test, on the devices and with the log of the test's directory.
fn process(test: &str, role: &str, place: &Path, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .envs([(ROLE, role.as_ref()), (PLACE, place.as_os_str())])
        .envs([("SOFTCUDA_TEST_STATE", place.join("state")), ("SOFTCUDA_LOG", place.join("log"))])
        .env("SOFTCUDA_WORKERS", "2")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for all, and lets none wait for one that has failed.
fn all_succeed(mut children: Vec<Child>) {
    let mut good = true;
    while !children.is_empty() {
        children.retain_mut(|child| match child.try_wait().unwrap() {
            Some(status) => {
                good &= status.success();
                false
            }
            None => true,
        });
        if !good {
            children.iter_mut().for_each(|child| _ = child.kill());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(good, "a process failed");
}

/// A page of a file, the same memory in every process, and its address on the device.
fn shared_words(place: &Path) -> (&'static [AtomicU32; 1024], u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(place.join("words"))
        .unwrap();
    file.set_len(4096).unwrap();
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    let mut address = 0;
    ok!(cuMemHostRegister_v2(page, 4096, 0));
    ok!(cuMemHostGetDevicePointer_v2(&mut address, page, 0));
    (unsafe { &*page.cast_const().cast() }, address)
}

/// A line of the log.
struct Line {
    fields: Vec<String>,
}

impl Line {
    fn number(&self, field: usize) -> u64 {
        self.fields[field].parse().unwrap()
    }
}

fn lines(place: &Path, kind: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(place.join("log")).unwrap();
    assert!(text.ends_with('\n'), "lines are written whole");
    let all = text.lines().map(|line| Line { fields: line.split('\t').map(str::to_owned).collect() });
    all.filter(|line| line.fields[0] == kind).collect()
}

/// Counts for a while.
const ENTER: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry enter(.param .u64 sink, .param .u64 rounds) {
.reg .b64 %s, %n, %i; .reg .pred %p;
ld.param.u64 %s, [sink]; ld.param.u64 %n, [rounds];
mov.u64 %i, 1;
LOOP: mad.lo.u64 %i, %i, 3, 1; sub.u64 %n, %n, 1; setp.ne.u64 %p, %n, 0; @%p bra LOOP;
setp.eq.u64 %p, %i, 0; @%p red.global.add.u32 [%s], 1;
ret; }";

/// Each block writes its process's number into `holder` again and again and looks whether it stays there, and counts in `clashes`
/// when it does not. There is no loop, at whose way back the device could be given away in between.
fn hold() -> String {
    let look = "ld.volatile.global.u32 %v, [%h]; setp.ne.u32 %p, %v, %m; @%p red.global.add.u32 [%c], 1;\n";
    let section = format!("st.volatile.global.u32 [%h], %m;\n{}", look.repeat(8));
    format!(
        ".version 7.0 .target sm_70 .address_size 64
.visible .entry hold(.param .u64 holder, .param .u64 clashes, .param .u32 me) {{
.reg .b64 %h, %c; .reg .b32 %m, %v; .reg .pred %p;
ld.param.u64 %h, [holder]; ld.param.u64 %c, [clashes]; ld.param.u32 %m, [me];
{}ret; }}",
        section.repeat(8)
    )
}

const HOLDER: usize = 0;
const CLASHES: usize = 2;
const DONE: usize = 3;
const KERNELS: u32 = 20;

/// Runs kernels until both have run enough, so that each has run while the other one wanted to.
fn contender(place: &Path, me: usize) {
    let context = context();
    let (words, base) = shared_words(place);
    let hold = function(module(&hold()), "hold");
    let at = |word: usize| base + 4 * word as u64;
    while words[DONE..DONE + 2].iter().any(|done| done.load(SeqCst) < KERNELS) {
        let parameters = [at(HOLDER), at(CLASHES), me as u64 + 1];
        assert_eq!(launch(hold, 2000, 1, 0, &parameters), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        words[DONE + me].fetch_add(1, SeqCst);
    }
    drop(context);
}

#[test]
fn kernels_of_one_process_at_a_time_have_the_device() {
    const NAME: &str = "kernels_of_one_process_at_a_time_have_the_device";
    if let Some((role, place)) = role() {
        return contender(&place, role.parse().unwrap());
    }
    let place = new_place("turns");
    let children = ["0", "1"].map(|role| process(NAME, role, &place, &[]));
    let pids = [0, 1].map(|i| u64::from(children[i].id()));
    all_succeed(children.into());
    let _context = context();
    let words = shared_words(&place).0;
    assert_eq!(words[CLASHES].load(SeqCst), 0, "blocks of two processes ran at once");
    let kernels = lines(&place, "kernel");
    for (i, pid) in pids.iter().enumerate() {
        let own: Vec<&Line> = kernels.iter().filter(|line| line.number(2) == *pid).collect();
        assert_eq!(own.len() as u32, words[DONE + i].load(SeqCst), "a line a kernel");
        assert!(own.iter().all(|k| k.fields.len() == 7 && k.number(1) == 0 && k.fields[6] == "hold"));
        assert!(own.iter().all(|k| k.number(3) < k.number(4)));
        assert!(own.windows(2).all(|k| k[0].number(4) <= k[1].number(3)), "they waited for each");
        assert!(lines(&place, "turn").iter().any(|turn| turn.number(2) == *pid));
    }
    std::fs::remove_dir_all(place).unwrap();
}

/// One kernel of many blocks, at the same time as the other process's.
fn rival(place: &Path, me: usize) {
    let context = context();
    let (words, base) = shared_words(place);
    let enter = function(module(ENTER), "enter");
    let at = |word: usize| base + 4 * word as u64;
    words[DONE + me].store(1, SeqCst);
    while words[DONE + 1 - me].load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    let parameters = [at(CLASHES), 2000];
    assert_eq!(launch(enter, 40_000, 1, 0, &parameters), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    drop(context);
}

#[test]
fn a_process_with_work_has_the_device_for_a_slice_of_two_milliseconds() {
    slices_of("a_process_with_work_has_the_device_for_a_slice_of_two_milliseconds", &[], 2_000_000);
}

#[test]
fn a_slice_is_as_long_as_it_is_told_to_be() {
    let longer = [("SOFTCUDA_TIMESLICE_US", "7000")];
    slices_of("a_slice_is_as_long_as_it_is_told_to_be", &longer, 7_000_000);
}

/// That two processes with work take turns of so many nanoseconds.
fn slices_of(test: &str, variables: &[(&str, &str)], least: u64) {
    if let Some((role, place)) = role() {
        return rival(&place, role.parse().unwrap());
    }
    let place = new_place(&format!("slices-{least}"));
    all_succeed(["0", "1"].map(|role| process(test, role, &place, variables)).into());
    let kernels = lines(&place, "kernel");
    assert_eq!(kernels.len(), 2);
    // While both had work.
    let from = kernels.iter().map(|line| line.number(3)).max().unwrap();
    let to = kernels.iter().map(|line| line.number(4)).min().unwrap();
    let mut turns: Vec<(u64, u64)> =
        lines(&place, "turn").iter().map(|line| (line.number(3), line.number(2))).collect();
    turns.sort_unstable();
    turns.retain(|(start, _)| (from..=to).contains(start));
    assert!(turns.len() >= 4, "{} turns in {} us", turns.len(), to.saturating_sub(from) / 1000);
    for pair in turns.windows(2) {
        assert_ne!(pair[0].1, pair[1].1, "in turns");
        assert!(pair[1].0 - pair[0].0 >= least, "{} ns", pair[1].0 - pair[0].0);
    }
    std::fs::remove_dir_all(place).unwrap();
}

/// Counts, in a loop that waits for nobody, and tells how far it is.
const COUNT: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry count(.param .u64 word, .param .u64 rounds) { .reg .b64 %w, %i, %n; .reg .b32 %v; .reg .pred %p;
ld.param.u64 %w, [word]; ld.param.u64 %n, [rounds]; mov.u64 %i, 0;
LOOP: add.u64 %i, %i, 1; cvt.u32.u64 %v, %i; st.volatile.global.u32 [%w], %v; setp.lo.u64 %p, %i, %n; @%p bra LOOP; ret; }";

const FAR: usize = 64;
const SMALL: usize = 65;

/// The first process runs one block for ever: first one that waits for the host, then one that waits for nobody, until it is killed.
fn forever(place: &Path) {
    let _context = context();
    let (words, base) = shared_words(place);
    let (endless, count) = (function(module(ENDLESS), "endless"), function(module(COUNT), "count"));
    assert_eq!(launch(endless, 1, 1, 0, &[base]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    words[DONE].store(1, SeqCst);
    assert_eq!(launch(count, 1, 32, 0, &[base + 4 * FAR as u64, u64::MAX]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    unreachable!("it counts for centuries");
}

/// The other one runs small kernels meanwhile.
fn meanwhile(place: &Path) {
    let _context = context();
    let (words, base) = shared_words(place);
    let count = function(module(COUNT), "count");
    let small = |n: u32| {
        let parameters = [base + 4 * SMALL as u64, u64::from(n)];
        assert_eq!(launch(count, 1, 32, 0, &parameters), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        assert_eq!(words[SMALL].load(SeqCst), n);
    };
    let changes = |word: usize, from: u32| {
        while words[word].load(SeqCst) == from {
            std::thread::yield_now();
        }
    };
    changes(0, 0);
    (1..=10).for_each(small);
    assert_eq!(words[DONE].load(SeqCst), 0);
    words[1].store(1, SeqCst);
    changes(DONE, 0);
    for n in 11..=20 {
        small(n);
        // The long kernel has the device again, and goes on.
        changes(FAR, words[FAR].load(SeqCst));
    }
}

#[test]
fn a_block_that_runs_for_long_gives_the_device_away_in_between() {
    const NAME: &str = "a_block_that_runs_for_long_gives_the_device_away_in_between";
    if let Some((role, place)) = role() {
        return if role == "forever" { forever(&place) } else { meanwhile(&place) };
    }
    let place = new_place("long-block");
    let mut long = process(NAME, "forever", &place, &[]);
    all_succeed(vec![process(NAME, "meanwhile", &place, &[])]);
    long.kill().unwrap();
    long.wait().unwrap();
    // The last of its slices is not over by the last of ten small kernels.
    let turns = lines(&place, "turn").iter().filter(|turn| turn.number(2) == u64::from(long.id())).count();
    assert!(turns >= 10, "{turns} turns");
    std::fs::remove_dir_all(place).unwrap();
}

/// Three kernels with events between them, whose distance goes into a file.
fn timed(place: &Path) {
    let _context = context();
    let (_, base) = shared_words(place);
    let (enter, stream, between) = (function(module(ENTER), "enter"), stream(1), [event(0), event(0)]);
    let parameters = [base + 4 * CLASHES as u64, 20_000];
    // An event that is recorded behind a kernel that is over has the time of its recording: so all is there before it begins.
    let gate = alloc(4);
    ok!(cuMemsetD32_v2(gate, 0, 1));
    ok!(cuStreamWaitValue32_v2(stream, gate, 1, 0));
    for i in 0..3 {
        assert_eq!(launch(enter, 8, 1, stream, &parameters), CUDA_SUCCESS);
        if let Some(event) = between.get(i) {
            ok!(cuEventRecord(*event, stream));
        }
    }
    ok!(cuMemsetD32_v2(gate, 1, 1));
    ok!(cuStreamSynchronize(stream));
    let mut milliseconds = 0f32;
    ok!(cuEventElapsedTime_v2(&mut milliseconds, between[0], between[1]));
    std::fs::write(place.join("elapsed"), milliseconds.to_bits().to_string()).unwrap();
}

#[test]
fn events_tell_when_the_device_ended_work_as_the_log_does() {
    const NAME: &str = "events_tell_when_the_device_ended_work_as_the_log_does";
    if let Some((_, place)) = role() {
        return timed(&place);
    }
    let place = new_place("events");
    all_succeed(vec![process(NAME, "timed", &place, &[])]);
    let mut ends: Vec<u64> = lines(&place, "kernel").iter().map(|line| line.number(4)).collect();
    ends.sort_unstable();
    assert_eq!(ends.len(), 3);
    let told: u32 = std::fs::read_to_string(place.join("elapsed")).unwrap().parse().unwrap();
    let expected = ((ends[1] - ends[0]) as f64 / 1e6) as f32;
    let told = f32::from_bits(told);
    // Both are rounded to a float's 24 bits, the nanoseconds at most once more.
    assert!((told - expected).abs() <= expected * 1e-6, "{told} ms, by the log {expected} ms");
    std::fs::remove_dir_all(place).unwrap();
}

const TOTAL: usize = 64 << 20;
const HELD: usize = 40 << 20;

/// Sets a word, and ends when the next one is set, which nobody does.
const ENDLESS: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry endless(.param .u64 words) { .reg .b64 %w; .reg .b32 %v; .reg .pred %p;
ld.param.u64 %w, [words]; st.volatile.global.u32 [%w], 1;
LOOP: ld.volatile.global.u32 %v, [%w+4]; setp.eq.u32 %p, %v, 0; @%p bra LOOP; ret; }";

/// Has memory and the device, until it is killed.
#[allow(clippy::print_stdout, reason = "so it tells the process that started it")]
fn holder(place: &Path) {
    let _context = context();
    alloc(HELD);
    let (words, base) = shared_words(place);
    assert_eq!(launch(function(module(ENDLESS), "endless"), 1, 1, 0, &[base]), CUDA_SUCCESS);
    while words[0].load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("READY");
    cu!(cuCtxSynchronize());
}

fn info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    (free, total)
}

/// Wants what the holder has.
fn taker(test: &str, place: &Path) {
    let mut holder = process(test, "holder", place, &[]);
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(|line| line.ok());
    assert!(said.any(|line| line.contains("READY")), "the holder failed");
    let _context = context();
    assert_eq!(info(), (TOTAL - HELD, TOTAL));
    let mut none = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&mut none, TOTAL - HELD + 1)), CUDA_ERROR_OUT_OF_MEMORY);
    let rest = alloc(TOTAL - HELD);
    assert_eq!(info(), (0, TOTAL));
    assert_eq!(cu!(cuMemAlloc_v2(&mut none, 4 << 20)), CUDA_ERROR_OUT_OF_MEMORY);
    // Copies go on beside the holder's kernel, which never ends.
    ok!(cuMemsetD8_v2(rest, 5, 64));
    ok!(cuMemcpyDtoD_v2(rest + 64, rest, 64));
    assert_eq!(read(rest + 126, 3)[..2], [5, 5]);
    ok!(cuMemFree_v2(rest));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(info(), (TOTAL, TOTAL), "at once");
    let all = alloc(TOTAL);
    assert_eq!(launch(function(module(MOVE), "move"), 1, 1, 0, &[all, all + 4]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
}

#[test]
fn a_killed_process_frees_memory_and_device_at_once() {
    const NAME: &str = "a_killed_process_frees_memory_and_device_at_once";
    match role() {
        Some((role, place)) if role == "holder" => return holder(&place),
        Some((_, place)) => return taker(NAME, &place),
        None => {}
    }
    let place = new_place("killed");
    all_succeed(vec![process(NAME, "taker", &place, &[("SOFTCUDA_MEMORY", "64M")])]);
    std::fs::remove_dir_all(place).unwrap();
}

/// Takes and gives back memory, and runs kernels, until it is killed.
#[allow(clippy::print_stdout, reason = "so it tells the process that started it")]
fn busy() {
    let _context = context();
    let (words, mover) = (alloc(64), function(module(MOVE), "move"));
    println!("READY");
    loop {
        for _ in 0..200 {
            ok!(cuMemFree_v2(alloc(1 << 20)));
        }
        assert_eq!(launch(mover, 2000, 32, 0, &[words, words + 8]), CUDA_SUCCESS);
    }
}

fn signal(child: &Child, signal: i32) {
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Stops the busy one at many points, and works meanwhile.
fn beside_a_stopped_one(test: &str, place: &Path) {
    let mut other = process(test, "busy", place, &[]);
    let mut said = BufReader::new(other.stdout.take().unwrap()).lines().map_while(|line| line.ok());
    assert!(said.any(|line| line.contains("READY")), "it failed");
    let _context = context();
    let (words, mover) = (alloc(64), function(module(MOVE), "move"));
    for _ in 0..150 {
        signal(&other, libc::SIGSTOP);
        let memory = alloc(1 << 20);
        assert_eq!(launch(mover, 1, 1, 0, &[words, words + 8]), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        ok!(cuMemFree_v2(memory));
        signal(&other, libc::SIGCONT);
        // So that it gets on.
        std::thread::sleep(Duration::from_micros(300));
    }
    other.kill().unwrap();
    other.wait().unwrap();
    ok!(cuMemFree_v2(words));
    assert_eq!(info(), (TOTAL, TOTAL), "whatever it was about to do");
}

#[test]
fn a_stopped_process_holds_up_nobody() {
    const NAME: &str = "a_stopped_process_holds_up_nobody";
    match role() {
        Some((role, _)) if role == "busy" => return busy(),
        Some((_, place)) => return beside_a_stopped_one(NAME, &place),
        None => {}
    }
    let place = new_place("stopped");
    all_succeed(vec![process(NAME, "beside", &place, &[("SOFTCUDA_MEMORY", "64M")])]);
    std::fs::remove_dir_all(place).unwrap();
}

/// Nanoseconds that the kernel itself sees go by between its begin and its end.
const CLOCK: &str = ".version 7.0 .target sm_70 .address_size 64
.visible .entry clock(.param .u64 out) { .reg .b64 %o, %a, %b, %i; .reg .pred %p;
ld.param.u64 %o, [out]; mov.u64 %a, %globaltimer; mov.u64 %i, 100000;
LOOP: sub.u64 %i, %i, 1; setp.ne.u64 %p, %i, 0; @%p bra LOOP;
mov.u64 %b, %globaltimer; sub.u64 %a, %b, %a; st.global.u64 [%o], %a; ret; }";

const SLOW: u64 = 25;

fn slow(place: &Path) {
    let _context = context();
    let (kernel, out) = (function(module(CLOCK), "clock"), alloc(8));
    let (before, after) = (event(0), event(0));
    ok!(cuEventRecord(before, 0));
    assert_eq!(launch(kernel, 1, 1, 0, &[out]), CUDA_SUCCESS);
    ok!(cuEventRecord(after, 0));
    ok!(cuEventSynchronize(after));
    let took = u64::from_le_bytes(read(out, 8).try_into().unwrap());
    assert!(took > 0);
    let kernels = lines(place, "kernel");
    assert_eq!(kernels.len(), 1);
    let logged = kernels[0].number(4) - kernels[0].number(3);
    assert!(logged >= SLOW * took, "{took} ns within, {logged} ns logged");
    let mut elapsed = 0.0;
    ok!(cuEventElapsedTime_v2(&mut elapsed, before, after));
    // Milliseconds with half a microsecond of resolution.
    assert!(f64::from(elapsed) * 1e6 + 1000.0 >= logged as f64, "{elapsed} ms by events, {logged} ns logged");
}

#[test]
fn a_device_is_as_slow_as_it_is_told_to_be() {
    const NAME: &str = "a_device_is_as_slow_as_it_is_told_to_be";
    if let Some((_, place)) = role() {
        return slow(&place);
    }
    let place = new_place("slow");
    all_succeed(vec![process(NAME, "slow", &place, &[("SOFTCUDA_SLOW", &SLOW.to_string())])]);
    std::fs::remove_dir_all(place).unwrap();
}

/// The scheduling policies of the threads of this process whose names begin so (field 41 of `/proc/…/stat`).
fn policies(name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats
        .filter(|stat| stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(name)))
        .map(|stat| stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().parse().unwrap())
        .collect()
}

extern "C" fn nothing(_: *mut c_void) {}

fn threads_of_the_device(expected: i32) {
    let _context = context();
    let words = alloc(64);
    let enter = function(module(ENTER), "enter");
    assert_eq!(launch(enter, 64, 1, 0, &[words, 10]), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    // A stream's thread that has just had work is there for a while.
    ok!(cuLaunchHostFunc(0, nothing, std::ptr::null_mut()));
    ok!(cuCtxSynchronize());
    let policies = policies("softcuda");
    assert!(!policies.is_empty());
    assert!(policies.iter().all(|policy| *policy == expected), "{policies:?}");
    assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER, "the program's own thread");
}

#[test]
fn the_devices_threads_leave_the_processors_to_others_unless_told_not_to() {
    const NAME: &str = "the_devices_threads_leave_the_processors_to_others_unless_told_not_to";
    if let Some((role, _)) = role() {
        let expected = if role == "idle" { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
        return threads_of_the_device(expected);
    }
    for role in ["idle", "normal"] {
        let place = new_place(role);
        all_succeed(vec![process(NAME, role, &place, &[("SOFTCUDA_PRIORITY", role)])]);
        std::fs::remove_dir_all(place).unwrap();
    }
}
