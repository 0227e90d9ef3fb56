// What NCCL's topology search links against and does not call for a machine read from a file.
#include "bootstrap.h"
#include "channel.h"
#include "comm.h"
#include "nvmlwrap.h"
#include "transport.h"
#include <cstdio>
#include <cstdlib>
#define NEVER(name) { fprintf(stderr, "the search asked for " #name "\n"); abort(); }
extern "C" {
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) NEVER(cudaDeviceGetAttribute)
cudaError_t cudaDeviceGetPCIBusId(char*, int, int) NEVER(cudaDeviceGetPCIBusId)
cudaError_t cudaGetDevice(int*) NEVER(cudaGetDevice)
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) NEVER(cudaGetDeviceProperties)
const char* cudaGetErrorString(cudaError_t) NEVER(cudaGetErrorString)
}
ncclResult_t bootstrapIntraNodeAllGather(void*, int*, int, int, void*, int) NEVER(bootstrapIntraNodeAllGather)
ncclResult_t initChannel(ncclComm*, int) NEVER(initChannel)
ncclResult_t ncclNvmlDeviceGetCudaComputeCapability(nvmlDevice_t, int*, int*) NEVER(nvml)
ncclResult_t ncclNvmlDeviceGetFieldValues(nvmlDevice_t, int, nvmlFieldValue_t*) NEVER(nvml)
ncclResult_t ncclNvmlDeviceGetHandleByPciBusId(char const*, nvmlDevice_t*) NEVER(nvml)
ncclResult_t ncclNvmlDeviceGetIndex(nvmlDevice_t, unsigned*) NEVER(nvml)
ncclResult_t ncclNvmlDeviceGetNvLinkCapability(nvmlDevice_t, unsigned, nvmlNvLinkCapability_t, unsigned*) NEVER(nvml)
ncclResult_t ncclNvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t, unsigned, nvmlPciInfo_t*) NEVER(nvml)
ncclResult_t ncclNvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned, nvmlEnableState_t*) NEVER(nvml)
ncclResult_t ncclNvmlEnsureInitialized() NEVER(nvml)
ncclNvmlDevicePairInfo ncclNvmlDevicePairs[ncclNvmlMaxDevices][ncclNvmlMaxDevices];
int64_t ncclParamWorkArgsBytes() NEVER(WORK_ARGS_BYTES)
struct ncclTransport* ncclTransports[NTRANSPORTS];
