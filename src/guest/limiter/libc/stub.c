/* What the limiter may import. Only names and versions matter; nothing here is ever run. */
int clock_gettime(void) { return 0; }
int dl_iterate_phdr(void) { return 0; }
int getenv(void) { return 0; }
int setenv(void) { return 0; }
