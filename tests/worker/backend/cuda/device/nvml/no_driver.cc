// NVIDIA's management library on a host without a driver.
extern "C" {

int nvmlInit_v2() { return 9; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void**) { return 9; }
int nvmlDeviceGetName(void*, char*, unsigned) { return 9; }
int nvmlDeviceGetMemoryInfo(void*, void*) { return 9; }
int nvmlDeviceGetUtilizationRates(void*, void*) { return 9; }
int nvmlDeviceGetTemperature(void*, int, unsigned*) { return 9; }
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return 9; }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned*) { return 9; }

}  // extern "C"
