// NVIDIA's management library with one GPU, which has no power meter.
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) { return error == 6 ? "Not Found" : "Not Supported"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  static int gpu;
  if (std::strcmp(id, "0000:1B:00.0") != 0) return 6;
  *device = &gpu;
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned length) {
  std::strncpy(name, "NVIDIA Abacus", length);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 1000;
  total_free_used[1] = 700;
  total_free_used[2] = 300;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_memory) {
  gpu_memory[0] = 87;
  gpu_memory[1] = 12;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  *celsius = sensor == 0 ? 61 : 0;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return 3; }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned*) { return 3; }

}  // extern "C"
