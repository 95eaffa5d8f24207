//! Batches of copies, as one node of a graph.

use crate::context::Context;
use crate::copy::Ends;
use crate::copy_box::BoxCopy;
use crate::error::*;
use std::sync::Arc;

/// `CUmemcpyAttributes` in words: order, source's and target's location, flags.
pub type Attributes = [u32; 6];

/// What the program says of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Targets.
    pub to: Box<[u64]>,
    /// Sources.
    pub from: Box<[u64]>,
    /// Bytes of each copy; a copy of none is switched off.
    pub bytes: Box<[usize]>,
    /// When sources are read, and where they are.
    pub attributes: Box<[Attributes]>,
    /// The first copy of each of these.
    pub firsts: Box<[usize]>,
}

impl Request {
    /// For each copy, whether its source is read during the call (`CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL`).
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for no copy, lists that do not fit together, and an order that is none.
    pub fn during_call(&self) -> Result<Vec<bool>> {
        let (count, kinds) = (self.to.len(), self.attributes.len());
        let firsts = &self.firsts;
        let fit = count > 0 && (1..=count).contains(&kinds) && firsts.len() == kinds;
        if !fit || firsts[0] != 0 || firsts.windows(2).any(|w| w[0] >= w[1]) || firsts[kinds - 1] >= count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let orders = self.attributes.iter().map(|a| during_call(a[0])).collect::<Result<Vec<_>>>()?;
        Ok((0..count).map(|i| orders[firsts.partition_point(|first| *first <= i) - 1]).collect())
    }
}

/// When the source is read: `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`, `_DURING_API_CALL`, `_ANY`. Whether the copy must be
/// over when the call returns.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn during_call(order: u32) -> Result<bool> {
    match order {
        1 | 3 => Ok(false),
        2 => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// A batch that is found to be possible.
pub struct CopyBatch {
    /// The context that it belongs to.
    pub context: Arc<Context>,
    /// As the program gave it.
    pub request: Request,
    copies: Vec<Arc<BoxCopy>>,
}

impl CopyBatch {
    /// Checks a batch. Every copy reads its source at the launch, as nothing is copied by the call that makes a node.
    ///
    /// # Errors
    /// As [`Request::during_call`] and [`BoxCopy::prepare`].
    ///
    /// # Safety
    /// Host ranges are the program's and valid whenever the batch runs.
    pub unsafe fn prepare(context: &Arc<Context>, request: Request) -> Result<Arc<CopyBatch>> {
        request.during_call()?;
        let ranges = request.to.iter().zip(&request.from).zip(&request.bytes);
        let copies = ranges
            .filter(|(_, bytes)| **bytes > 0)
            // SAFETY: the caller vouches for the ranges.
            .map(|((to, from), bytes)| unsafe { Ends::Unified.prepare(*to, *from, *bytes) })
            .collect::<Result<_>>()?;
        Ok(Arc::new(CopyBatch { context: context.clone(), request, copies }))
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.copies.iter().map(|copy| copy.bytes()).sum()
    }

    /// Whether an executable graph takes another one in its place: only addresses and sizes may differ.
    pub fn takes(&self, other: &CopyBatch) -> bool {
        let fixed = |batch: &CopyBatch| {
            let request = &batch.request;
            (request.to.len(), request.attributes.clone(), request.firsts.clone(), batch.context.handle)
        };
        fixed(self) == fixed(other)
    }

    /// Does the copies.
    ///
    /// # Errors
    /// As [`BoxCopy::run`].
    pub fn run(&self) -> Result {
        self.copies.iter().try_for_each(|copy| copy.run())
    }
}
