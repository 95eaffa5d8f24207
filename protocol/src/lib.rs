//! What client and server of gpupool must agree on: call list, wire, transports, control messages.
