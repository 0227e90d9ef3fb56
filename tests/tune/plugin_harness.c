/* Drives the plugin under AddressSanitizer: for each rule file of the command line, initialise,
 * ask about every function at many sizes with an exactly sized table, finalise; print status. */
#include <stdio.h>
#include <stdlib.h>

#include "tuner.c"

int main(int argc, char **argv) {
  for (int file = 1; file < argc; file++) {
    void *context = NULL;
    setenv("NCCL_TUNER_CONFIG_FILE", argv[file], 1);
    int status = ncclTunerPlugin_v5.init(&context, 1, 16, 2, NULL, NULL, NULL);
    long changed = 0;
    for (int function = 0; function < 5 && status == 0; function++)
      for (int shift = 0; shift < 64; shift++)
        for (int registered = 0; registered < 2; registered++) {
          /* Older releases have fewer algorithms: 6 x 3 in 2.22. */
          int algorithms = shift % 2 ? 6 : 7, channels = 0;
          float *table = malloc((size_t)algorithms * 3 * sizeof *table);
          for (int i = 0; i < algorithms * 3; i++) table[i] = i % 4 ? 10.0f : -1.0f;
          ncclTunerPlugin_v5.get_coll_info(context, function, (size_t)1 << shift, 1,
                                           (float **)(void *)table, algorithms, 3, registered,
                                           &channels);
          for (int i = 0; i < algorithms * 3; i++) changed += table[i] == 0.0f;
          free(table);
        }
    ncclTunerPlugin_v5.finalize(context);
    printf("%d %ld\n", status, changed);
  }
  return 0;
}
