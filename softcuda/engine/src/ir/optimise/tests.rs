use crate::ir::passes::prepare;
use crate::ir::{Function, Op, Opd, Term};

/// The first function of a module with this body, optimised.
fn body(text: &str) -> Function {
    let ptx = format!(
        ".version 8.0 .target sm_75 .address_size 64 .visible .entry k(.param .u64 a, .param .u32 b) {{
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<20>; {text} }}"
    );
    let mut program = crate::ptx::parse(&ptx).unwrap_or_else(|e| panic!("{e}"));
    prepare(&mut program, true);
    program.functions.remove(0)
}

fn count(f: &Function, which: impl Fn(&Op) -> bool) -> usize {
    f.blocks.iter().flat_map(|b| &b.insts).filter(|i| which(&i.op)).count()
}

#[test]
fn repeated_computations_are_done_once() {
    let f = body(
        "ld.param.u64 %d1, [a]; cvta.to.global.u64 %d2, %d1; ld.param.u64 %d3, [a]; cvta.to.global.u64 %d4, %d3;
         mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.x; mul.wide.u32 %d5, %r1, 4; mul.wide.u32 %d6, %r2, 4;
         add.s64 %d7, %d2, %d5; add.s64 %d8, %d6, %d4;
         ld.global.u32 %r3, [%d7]; add.s32 %r4, %r3, 1; st.global.u32 [%d8], %r4; ret;",
    );
    assert_eq!(count(&f, |op| matches!(op, Op::Int { .. })), 3, "one product, one address, one sum: {f:#?}");
    assert_eq!(count(&f, |op| matches!(op, Op::Ld { .. })), 2);
    assert_eq!(count(&f, |op| matches!(op, Op::Mov { .. } | Op::Cvta { .. })), 1, "only %tid.x: {f:#?}");
}

#[test]
fn sums_move_into_addresses() {
    let f = body(
        "ld.param.u64 %d1, [a]; add.s64 %d2, %d1, 16; add.s64 %d3, %d2, -4; st.global.u32 [%d3+8], 7; ret;",
    );
    assert_eq!(count(&f, |op| matches!(op, Op::Int { .. })), 0, "{f:#?}");
    assert_eq!(count(&f, |op| op.address().is_some_and(|a| a.offset == 20)), 1, "{f:#?}");
}

#[test]
fn branches_on_constants_are_jumps() {
    let f = body(
        "ld.param.u64 %d1, [a]; mov.u32 %r1, 3; add.s32 %r2, %r1, 4; setp.lt.s32 %p1, %r2, 8; @%p1 bra L;
         st.global.u32 [%d1], 1; L: @!%p1 st.global.u32 [%d1], 2; ret;",
    );
    assert!(f.blocks.iter().all(|b| !matches!(b.term, Term::Branch { .. })), "{f:#?}");
    assert_eq!(count(&f, |op| matches!(op, Op::St { a, .. } if a[0] == Opd::Imm(2))), 0, "{f:#?}");
}

#[test]
fn what_another_branch_computed_is_not_used() {
    let f = body(
        "ld.param.u64 %d1, [a]; ld.param.u32 %r1, [b]; setp.eq.s32 %p1, %r1, 0; @%p1 bra L;
         mul.lo.s32 %r2, %r1, 7; st.global.u32 [%d1], %r2; bra M;
         L: mul.lo.s32 %r3, %r1, 7; st.global.u32 [%d1+4], %r3; M: ret;",
    );
    assert_eq!(count(&f, |op| matches!(op, Op::Int { .. })), 2, "{f:#?}");
}

#[test]
fn clocks_and_guarded_writes_are_left_alone() {
    let f = body(
        "ld.param.u64 %d1, [a]; mov.u32 %r1, %clock; mov.u32 %r2, %clock; sub.s32 %r3, %r2, %r1;
         ld.param.u32 %r4, [b]; setp.eq.s32 %p1, %r4, 0; @%p1 mov.u32 %r3, 5; st.global.u32 [%d1], %r3; ret;",
    );
    assert_eq!(count(&f, |op| matches!(op, Op::Mov { a: Opd::Special(_), .. })), 2);
    assert_eq!(count(&f, |op| matches!(op, Op::Mov { a: Opd::Imm(5), .. })), 1);
}
