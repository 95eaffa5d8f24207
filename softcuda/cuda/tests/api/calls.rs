//! Calls that take a stream, each by its two names: the plain one, for which stream 0 is the legacy stream, and the one for
//! which it is the calling thread's own (`_ptsz`, `_ptds`).
#![allow(unused_macros, unused_imports, reason = "not every test file writes such calls")]

use super::*;

/// `CU_STREAM_PER_THREAD`.
pub const OWN: H = 2;

/// A call, and what shows that its work was done.
pub struct Call<P> {
    pub name: &'static str,
    /// The `CUgraphNodeType` that a capture makes of it; none where captures are not looked at.
    pub node: Option<u32>,
    pub plain: fn(&P, H) -> CUresult,
    pub own: fn(&P, H) -> CUresult,
    /// What is there, and what is to be there when it was done.
    pub done: fn(&P) -> (Vec<u8>, Vec<u8>),
}

/// `call!(node, cuName cuName_ptsz, |place, stream| (arguments), done)`.
macro_rules! call {
    ($node:expr, $plain:ident $own:ident, |$place:ident, $stream:ident| ($($argument:expr),* $(,)?), $done:expr) => {
        $crate::api::calls::Call {
            name: stringify!($plain),
            node: $node,
            plain: |$place, $stream| $crate::api::cu!($plain($($argument),*)),
            own: |$place, $stream| $crate::api::cu!($own($($argument),*)),
            done: $done,
        }
    };
}

pub(crate) use call;

impl<P> Call<P> {
    pub fn assert_done(&self, place: &P, how: &str) {
        let (found, wanted) = (self.done)(place);
        assert_eq!(found, wanted, "{} {how}", self.name);
    }

    pub fn assert_not_done(&self, place: &P, how: &str) {
        let (found, wanted) = (self.done)(place);
        assert_ne!(found, wanted, "{} {how}", self.name);
    }

    /// Does it by both names in streams, and checks what it did.
    pub fn check_in_streams(&self, fresh: impl Fn() -> P) {
        let forms = [
            (self.plain, stream(1), "in a stream"),
            (self.plain, OWN, "in the thread's stream"),
            (self.own, 0, "own"),
        ];
        for (call, stream, how) in forms {
            let place = fresh();
            self.assert_not_done(&place, "before it is called");
            assert_eq!(call(&place, stream), CUDA_SUCCESS, "{} {how}", self.name);
            ok!(cuStreamSynchronize(if stream == 0 { OWN } else { stream }));
            self.assert_done(&place, how);
        }
    }

    /// Captures it by both names: it becomes one node, and is done when the graph is launched. The legacy stream is refused
    /// while a stream that it waits for is captured.
    pub fn check_in_captures(&self, fresh: impl Fn() -> P) {
        const RELAXED: u32 = 2;
        let Some(wanted) = self.node else { return };
        let other = stream(1);
        for (call, stream, captured) in [(self.plain, other, other), (self.own, 0, OWN)] {
            let place = fresh();
            ok!(cuStreamBeginCapture_v2(captured, RELAXED));
            assert_eq!(call(&place, stream), CUDA_SUCCESS, "{} in a capture", self.name);
            let (mut graph, mut exec, mut kind, mut node, mut count) = (0, 0, 99, 0, 1);
            ok!(cuStreamEndCapture(captured, &mut graph));
            ok!(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count));
            assert_eq!(count, 1, "{}", self.name);
            ok!(cuGraphGetNodes(graph, &mut node, &mut count));
            ok!(cuGraphNodeGetType(node, &mut kind));
            assert_eq!(kind, wanted, "{}", self.name);
            self.assert_not_done(&place, "when it was captured");
            ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            ok!(cuGraphLaunch(exec, other));
            ok!(cuStreamSynchronize(other));
            self.assert_done(&place, "by the graph");
            ok!(cuGraphExecDestroy(exec));
            ok!(cuGraphDestroy(graph));
        }
        let place = fresh();
        ok!(cuStreamBeginCapture_v2(OWN, RELAXED));
        assert_eq!((self.plain)(&place, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "{}", self.name);
        cu!(cuStreamEndCapture(OWN, &mut 0));
    }
}
