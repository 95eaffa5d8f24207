#pragma once
extern __device__ int transformed(int x);
extern __device__ int calls;
extern __constant__ int offset;
void set_offset(int value);
int counted_calls();
