// Prints what cuInit returns and how long it took, and that later calls answer too: "cuInit CODE MILLISECONDS count CODE".
#include "driver.h"
int main() {
  library(); double t = seconds(); CUresult r = CALL(cuInit)(0); double ms = (seconds() - t) * 1e3;
  int count = 0; CUresult c = CALL(cuDeviceGetCount)(&count);
  std::printf("cuInit %d %.0f count %d\n", (int)r, ms, (int)c);
}
