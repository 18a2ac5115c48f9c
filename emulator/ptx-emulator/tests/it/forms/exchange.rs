//! Exchanges between lanes of a warp and threads of a block, compared with the definitions in the
//! PTX manual.

use crate::{
    faults::kernel,
    gpu::{Gpu, arguments},
};
use ptx_emulator::Dimensions;

const REDUCTIONS: [(&str, fn(u32, u32) -> u32); 9] = [
    ("add.u32", u32::wrapping_add),
    ("add.s32", u32::wrapping_add),
    ("min.u32", u32::min),
    ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
    ("max.u32", u32::max),
    ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
    ("and.b32", |a, b| a & b),
    ("or.b32", |a, b| a | b),
    ("xor.b32", |a, b| a ^ b),
];

pub(super) fn names() -> impl Iterator<Item = String> {
    let shuffles = ["up", "down", "bfly", "idx"].map(|mode| format!("shfl.sync.{mode}.b32"));
    let votes = ["all.pred", "any.pred", "uni.pred", "ballot.b32"].map(|vote| format!("vote.sync.{vote}"));
    let matches =
        ["any.sync.b32", "any.sync.b64", "all.sync.b32", "all.sync.b64"].map(|kind| format!("match.{kind}"));
    let reductions = REDUCTIONS.map(|(name, _)| format!("redux.sync.{name}"));
    let barriers = ["popc.u32", "and.pred", "or.pred"].map(|kind| format!("bar.red.{kind}"));
    shuffles.into_iter().chain(votes).chain(matches).chain(reductions).chain(barriers)
}

/// Masks of participating lanes: all of them, and subsets.
const MEMBERS: [u32; 4] = [u32::MAX, 0x0000_ffff, 0x8421_00f1, 1 << 7];

/// Runs `body` in the threads of each warp named by `members`. Inputs are the thread's value in
/// `%rd6`, its low half in `%r6` and its lowest bit in `%p6`. Results are `%r7` and `%p7`, returned
/// as two halves; threads without a result return `u64::MAX`.
fn exchanged(body: &str, members: u32, values: &[u64]) -> Vec<u64> {
    let text = format!(
        "and.b32 %r2, %r1, 31; mov.u32 %r3, {members}; shr.u32 %r3, %r3, %r2; and.b32 %r3, %r3, 1;
         setp.eq.u32 %p1, %r3, 0; @%p1 bra done;
         mul.wide.u32 %rd8, %r1, 8; add.s64 %rd8, %rd8, %rd1; ld.global.u64 %rd6, [%rd8];
         cvt.u32.u64 %r6, %rd6;
         and.b32 %r3, %r6, 1; setp.ne.u32 %p6, %r3, 0; mov.pred %p7, %p1; mov.u32 %r7, 0;
         {body}
         selp.u32 %r8, 1, 0, %p7; st.global.v2.u32 [%rd8+1024], {{%r7, %r8}};
         done:"
    );
    let mut gpu = Gpu::new(&kernel(&text));
    let mut table = vec![u64::MAX; 256];
    table[..values.len()].copy_from_slice(values);
    let at = gpu.upload(&table);
    gpu.run("test", Dimensions::linear(1, values.len() as u32), &arguments![at]);
    gpu.download::<u64>(at, 256)[128..128 + values.len()].to_vec()
}

/// Returns the expected results, computed by a function of the participating lane.
fn expected(members: u32, lane: impl Fn(usize) -> (u32, bool)) -> Vec<u64> {
    let both = |(word, truth): (u32, bool)| u64::from(word) | u64::from(truth) << 32;
    (0..32).map(|at| if members >> at & 1 != 0 { both(lane(at)) } else { u64::MAX }).collect()
}

fn lanes(members: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| members >> lane & 1 != 0)
}

fn bits(mut holds: impl FnMut(usize) -> bool) -> u32 {
    (0..32).fold(0, |all, lane| all | u32::from(holds(lane)) << lane)
}

#[test]
fn shuffles_match_reference() {
    let values: Vec<u64> = (0..32).map(|lane| 1000 + lane * lane).collect();
    for mode in ["up", "down", "bfly", "idx"] {
        for (by, clamp) in [0, 1, 5, 16, 31, 37]
            .into_iter()
            .flat_map(|by| [0x1f, 0, 7, 0x181f, 0x1c03, 0x1000].map(|clamp| (by, clamp)))
        {
            let body = format!("shfl.sync.{mode}.b32 %r7|%p7, %r6, {by}, {clamp}, 0xffffffff;");
            let from = |lane: usize| {
                let (lane, by, last, segment) = (lane as i32, by & 31, clamp & 31, clamp >> 8 & 31);
                let (largest, smallest) = (lane & segment | last & !segment, lane & segment);
                let (other, inside) = match mode {
                    "up" => (lane - by, lane - by >= largest),
                    "down" => (lane + by, lane + by <= largest),
                    "bfly" => (lane ^ by, lane ^ by <= largest),
                    _ => (smallest | by & !segment, smallest | by & !segment <= largest),
                };
                (if inside { other } else { lane } as usize, inside)
            };
            let expected = expected(u32::MAX, |lane| (values[from(lane).0] as u32, from(lane).1));
            assert_eq!(exchanged(&body, u32::MAX, &values), expected, "{body}");
        }
    }
    // A shuffle among half of a warp.
    let body = "shfl.sync.bfly.b32 %r7|%p7, %r6, 3, 31, 0xffff;";
    assert_eq!(exchanged(body, 0xffff, &values), expected(0xffff, |lane| (values[lane ^ 3] as u32, true)));
}

#[test]
fn votes_match_reference() {
    for (members, truths) in
        MEMBERS.into_iter().flat_map(|members| [0, u32::MAX, 1, 0x8421_00f1].map(|truths| (members, truths)))
    {
        let values: Vec<u64> = (0..32).map(|lane| (truths >> lane & 1).into()).collect();
        for negated in [false, true] {
            let hold = if negated { !truths & members } else { truths & members };
            let predicate = if negated { "!%p6" } else { "%p6" };
            for (vote, holds) in
                [("all", hold == members), ("any", hold != 0), ("uni", hold == 0 || hold == members)]
            {
                let body = format!("vote.sync.{vote}.pred %p7, {predicate}, {members};");
                assert_eq!(
                    exchanged(&body, members, &values),
                    expected(members, |_| (0, holds)),
                    "{body} {truths:#x}"
                );
            }
            let body = format!("vote.sync.ballot.b32 %r7, {predicate}, {members};");
            assert_eq!(
                exchanged(&body, members, &values),
                expected(members, |_| (hold, false)),
                "{body} {truths:#x}"
            );
        }
    }
}

#[test]
fn matches_match_reference() {
    // Values with equal low halves and different high halves.
    let mixed: Vec<u64> = (0..32).map(|lane| lane % 3 | (lane % 2) << 32).collect();
    for (members, values) in
        MEMBERS.into_iter().flat_map(|members| [(members, mixed.clone()), (members, vec![9; 32])])
    {
        for (kind, register, cut) in [("b32", "%r6", u64::from(u32::MAX)), ("b64", "%rd6", u64::MAX)] {
            let equal = |lane: usize| {
                bits(|other| members >> other & 1 != 0 && (values[lane] ^ values[other]) & cut == 0)
            };
            let body = format!("match.any.sync.{kind} %r7, {register}, {members};");
            assert_eq!(
                exchanged(&body, members, &values),
                expected(members, |lane| (equal(lane), false)),
                "{body}"
            );
            let all = lanes(members).all(|lane| equal(lane) == members);
            let body = format!("match.all.sync.{kind} %r7|%p7, {register}, {members};");
            let expected = expected(members, |_| (if all { members } else { 0 }, all));
            assert_eq!(exchanged(&body, members, &values), expected, "{body}");
        }
    }
}

#[test]
fn warp_reductions_match_reference() {
    let values: Vec<u64> =
        (0..32_u32).map(|lane| lane.wrapping_mul(0x9e37_79b9).rotate_left(lane).into()).collect();
    for (members, (name, join)) in
        MEMBERS.into_iter().flat_map(|members| REDUCTIONS.map(|reduction| (members, reduction)))
    {
        let body = format!("redux.sync.{name} %r7, %r6, {members};");
        let all = lanes(members).map(|lane| values[lane] as u32).reduce(join).unwrap();
        assert_eq!(exchanged(&body, members, &values), expected(members, |_| (all, false)), "{body}");
    }
}

#[test]
fn barrier_reductions_match_reference() {
    // Two warps, one of them half full.
    for truths in [vec![0; 48], vec![1; 48], (0..48).map(|thread| u64::from(thread % 5 == 3)).collect()] {
        for negated in [false, true] {
            let count = truths.iter().filter(|truth| (**truth == 1) != negated).count();
            let predicate = if negated { "!%p6" } else { "%p6" };
            for (body, word, truth) in [
                (format!("bar.red.popc.u32 %r7, 1, {predicate};"), count as u32, false),
                (format!("bar.red.and.pred %p7, 1, {predicate};"), 0, count == 48),
                (format!("bar.red.or.pred %p7, 1, {predicate};"), 0, count > 0),
            ] {
                let found = exchanged(&body, u32::MAX, &truths);
                assert_eq!(found, vec![u64::from(word) | u64::from(truth) << 32; 48], "{body} {truths:?}");
            }
        }
    }
}
