/* Calls back into the program that opens it, under the loader's lock. */
void constructed(void);

__attribute__((constructor)) static void construct(void)
{
    constructed();
}
