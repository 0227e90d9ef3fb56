// What RCCL's topology and tuning sources use of HIP, in terms of CUDA's headers: none of it is called.
#pragma once
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cmath>
#include <string>
struct rccl_float8 { unsigned char data; };
struct rccl_bfloat8 { unsigned char data; };
#undef CUDART_VERSION  // its code for CUDA alone
#define CUmemFabricHandle_st rcclFabricHandle_st
#define CUmemFabricHandle_v1 rcclFabricHandle_v1
#define CUmemFabricHandle rcclFabricHandle
static constexpr int rcclWarpSize = 64;
#define warpSize rcclWarpSize
#define hipDeviceMallocDefault 0
#define hipDeviceMallocFinegrained 1
#define hipDeviceMallocUncached 3
#define hipDeviceAttributeDirectManagedMemAccessFromHost cudaDevAttrDirectManagedMemAccessFromHost
#define hipDeviceGetAttribute cudaDeviceGetAttribute
#define hipStream_t cudaStream_t
#define hipEvent_t cudaEvent_t
#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipIpcMemHandle_t cudaIpcMemHandle_t
#define hipFunction_t cudaFunction_t
#define __hip_atomic_load(at, order, scope) (*(at))
typedef int hipDeviceArch_t;
struct hipDeviceProp_t { char gcnArchName[256]; hipDeviceArch_t arch; int gcnArch, multiProcessorCount; };
cudaError_t hipGetDeviceProperties(hipDeviceProp_t*, int);
