//! Events.

macro_rules! list_event {
    ([$next:ident $($rest:ident)*] $($list:tt)*) => { $next! { [$($rest)*] $($list)*

700 post(hand) record event_create(event: New<Event>, flags: u32);
701 post(hand) record event_destroy(event: Delete<Event>);
702 post(hand) record event_record(event: Event, stream: Stream, flags: u32);
/// Answers when the event's last record is done, with what the driver's synchronise says.
703 call(slow, hand) record event_synchronize(event: Event);
/// Asks that the board word `word` be raised to `value` when the event's last record is done.
704 post(hand) record event_watch(event: Event, word: u32, value: u64);
/// What the driver's query of the event says now: success, not ready, or an error.
706 call(hand) record event_query(event: Event);
705 call cuEventElapsedTime_v2, cuEventElapsedTime(milliseconds: Out<f32>, start: Event, end: Event);
hand post cuEventCreate(event: *mut CUevent, flags: u32) using event_create;
hand post cuEventDestroy_v2, cuEventDestroy(event: CUevent) using event_destroy;
hand post cuEventRecord | cuEventRecord_ptsz(event: CUevent, stream: CUstream) using event_record;
hand post cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: u32) using event_record;
hand call cuEventSynchronize(event: CUevent) using event_synchronize;
hand call cuEventQuery(event: CUevent) using event_query, event_watch;

    }};
}
